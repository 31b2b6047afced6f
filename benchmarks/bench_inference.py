"""
Compares the time in which the reference server continues a batch of texts with that of its model alone.

The model alone reads the prompts, and then generates the most probable character of each text of the batch in each
step. The scheduler adds what keeps track of the texts; a protocol adds the server's event loop, the messages, and a
client on the same machine.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as in the server
sys.path[:0] = [str(Path(__file__).parents[1])]

from measure import compare  # noqa: E402

from tests.features.inference.servers.reference_server import WORKLOADS, ReferenceServer, serving  # noqa: E402

sys.path[:0] = map(str, WORKLOADS)

import grpc  # noqa: E402
import numpy as np  # noqa: E402

import checkpoint as checkpoints  # noqa: E402
import transformer  # noqa: E402
from reference_server.batching import Batch, Job  # noqa: E402
from reference_server.generation import Limits, Options  # noqa: E402
from reference_server.model import Model  # noqa: E402
from reference_server.vocabulary import Vocabulary  # noqa: E402
from toolbox.features.inference.client.fmaas import generation_pb2 as fmaas  # noqa: E402

ROUNDS, LIMIT = 9, 2.0
TEXTS, PROMPT, LENGTH = 8, 32, 200
CHARACTERS = "".join(map(chr, range(32, 132)))
SHAPE = transformer.Shape(vocabulary=len(CHARACTERS), layers=2, width=128, heads=4, context=256)
PROMPTS = ["".join(CHARACTERS[(7 * place + text) % 90] for place in range(PROMPT)) for text in range(TEXTS)]


class Alone:
    """The model in this process."""

    def __init__(self, parameters: transformer.Arrays) -> None:
        self.vocabulary = Vocabulary(CHARACTERS)
        self.model = Model(SHAPE, parameters, slots=TEXTS, length=SHAPE.context)

    def generate(self) -> None:
        """Continue the texts with nothing but the model."""
        prompts = [self.vocabulary.encode(prompt) for prompt in PROMPTS]
        tokens = [int(self.model.prefill(slot, prompt)[-1].argmax()) for slot, prompt in enumerate(prompts)]
        for position in range(PROMPT, PROMPT + LENGTH - 1):
            scores = self.model.decode(range(TEXTS), tokens, [position] * TEXTS)
            tokens = scores.argmax(axis=1).tolist()

    def schedule(self) -> None:
        """Continue the texts as the engine does."""
        batch, limits = Batch(self.model, TEXTS), Limits(max_sequence_length=SHAPE.context, max_new_tokens=LENGTH)
        for prompt in PROMPTS:
            request = limits.prepare(self.vocabulary.encode(prompt), Options(max_new_tokens=LENGTH))
            batch.add(Job(request, self.vocabulary, 0.0))
        while batch.has_jobs:
            batch.step(0.0)


class Clients:
    """Clients of both protocols. All of them let the server generate the same texts, in a batch of the same size."""

    def __init__(self, server: ReferenceServer) -> None:
        self.server = server
        self.channel = grpc.insecure_channel(server.grpc_address)
        self.threads = ThreadPoolExecutor(TEXTS)
        self.parameters = fmaas.Parameters(stopping=fmaas.StoppingCriteria(max_new_tokens=LENGTH))

    def completion(self) -> None:
        """Send all texts in one request, over HTTP."""
        assert self._complete(PROMPTS) == LENGTH * TEXTS

    def completions(self, *, stream: bool) -> None:
        """Send a request per text at the same time, over HTTP."""
        found = self.threads.map(lambda prompt: self._complete(prompt, stream=stream), PROMPTS)
        assert list(found) == [LENGTH] * TEXTS

    def _complete(self, prompt: str | list[str], *, stream: bool = False) -> int:
        """Return the number of generated tokens."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.http_port)
        body = {"model": self.server.model, "prompt": prompt, "max_tokens": LENGTH, "temperature": 0}
        connection.request("POST", "/v1/completions", json.dumps(body | {"stream": stream}))
        content = connection.getresponse().read()
        connection.close()
        return content.count(b"data: ") - 1 if stream else json.loads(content)["usage"]["completion_tokens"]

    def generate(self) -> None:
        """Send all texts in one request, over gRPC."""
        assert self._generate(PROMPTS) == LENGTH * TEXTS

    def generate_each(self) -> None:
        """Send a request per text at the same time, over gRPC."""
        assert list(self.threads.map(lambda prompt: self._generate([prompt]), PROMPTS)) == [LENGTH] * TEXTS

    def _generate(self, prompts: list[str]) -> int:
        """Return the number of generated tokens."""
        requests = [fmaas.GenerationRequest(text=prompt) for prompt in prompts]
        call: Any = self.channel.unary_unary(
            "/fmaas.GenerationService/Generate",
            request_serializer=fmaas.BatchedGenerationRequest.SerializeToString,
            response_deserializer=fmaas.BatchedGenerationResponse.FromString,
        )
        found = call(fmaas.BatchedGenerationRequest(requests=requests, params=self.parameters))
        return sum(response.generated_token_count for response in found.responses)

    def streams(self) -> None:
        """Send a request per text at the same time, over gRPC, and get each token in a message."""
        call: Any = self.channel.unary_stream(
            "/fmaas.GenerationService/GenerateStream",
            request_serializer=fmaas.SingleGenerationRequest.SerializeToString,
            response_deserializer=fmaas.GenerationResponse.FromString,
        )

        def complete(prompt: str) -> int:
            request = fmaas.GenerationRequest(text=prompt)
            return sum(1 for _ in call(fmaas.SingleGenerationRequest(request=request, params=self.parameters))) - 1

        assert list(self.threads.map(complete, PROMPTS)) == [LENGTH] * TEXTS


def main() -> int:
    """Measure, and return 1 if the scheduler takes more time than the model."""
    parameters = transformer.initial_parameters(SHAPE, np.random.default_rng(0), "float32")
    alone = Alone(parameters)
    print(f"{TEXTS} texts, {PROMPT} + {LENGTH} characters, {SHAPE.layers} layers of width {SHAPE.width}; in all:")
    title = "the scheduler with its model / the model alone"
    within = compare(title, alone.schedule, alone.generate, rounds=ROUNDS, limit=LIMIT)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "bench.npz")
        content = checkpoints.Checkpoint(shape=SHAPE, parameters=parameters, characters=CHARACTERS)
        path.write_bytes(checkpoints.encode(content))
        with serving(path, max_batch_size=TEXTS) as server:
            clients = Clients(server)
            for title, function in {
                "HTTP, one response for all": clients.completion,
                "HTTP, one response per text": lambda: clients.completions(stream=False),
                "HTTP, a stream per text": lambda: clients.completions(stream=True),
                "gRPC, one response for all": clients.generate,
                "gRPC, one response per text": clients.generate_each,
                "gRPC, a stream per text": clients.streams,
            }.items():
                compare(f"{title} / the model alone", function, alone.generate, rounds=ROUNDS)
            clients.channel.close()
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
