"""
A server of text generation on the CPU, which serves the model that `training_e2e` trains, to test clients and tests.

    python -m reference_server --checkpoint=model.npz --dtype_str=float32 --num_shard=1 --port=8080 --grpc_port=8033

It speaks OpenAI's HTTP protocol (`openai_api`) and the gRPC service `fmaas.GenerationService` of TGIS (`fmaas_api`).
Both translate their requests to the types of `generation`. The `engine` generates the texts in a batch (`batching`),
with a `model` whose parts may be in several processes (`shards`).

A token is a character of the vocabulary of the checkpoint. The model has no token for the end of a text, so a text
ends at a limit or with a stop sequence, and no generation has the stop reason EOS_TOKEN.

A result does not depend on the other requests of a batch: on one machine, with the same options of the server, the
same request gets the same tokens and the same bits of its probabilities, alone and among others.

Python must find three packages: this one, the workload of `training_e2e`, and `toolbox.features.inference.client`,
which has the messages of the gRPC service. The libraries are numpy, pydantic, and those of the extra `inference` of
Topgallant.
"""

import os
import sys

# numpy reads these variables when it is imported. With one thread per process, shards don't slow each other down.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
sys.dont_write_bytecode = True  # hosts get a copy of this folder, which should contain no __pycache__
