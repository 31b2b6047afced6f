"""A client that grpcio-tools has generated from the published definition of fmaas talks to the reference server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.features.inference.servers.inference.published_fmaas import proto_text
from tests.features.inference.servers.reference_server import ReferenceServer

CLIENT = """
import sys, grpc, generation_pb2 as messages, generation_pb2_grpc as stubs
with grpc.insecure_channel(sys.argv[1]) as channel:
    stub = stubs.GenerationServiceStub(channel)
    parameters = messages.Parameters(
        method=messages.SAMPLE,
        sampling=messages.SamplingParameters(temperature=0.7, seed=5),
        stopping=messages.StoppingCriteria(max_new_tokens=4),
        response=messages.ResponseOptions(generated_tokens=True, token_logprobs=True, token_ranks=True, top_n_tokens=2),
    )
    request = messages.GenerationRequest(text="to be")
    whole = stub.Generate(messages.BatchedGenerationRequest(requests=[request, request], params=parameters))
    first, second = whole.responses
    assert first == second
    assert (first.generated_token_count, first.input_token_count, first.seed) == (4, 5, 5)
    assert "".join(token.text for token in first.tokens) == first.text
    assert all(token.logprob < 0 < token.rank and len(token.top_tokens) == 2 for token in first.tokens)
    parts = list(stub.GenerateStream(messages.SingleGenerationRequest(request=request, params=parameters)))
    assert "".join(part.text for part in parts) == first.text
    assert parts[-1].stop_reason == first.stop_reason == messages.MAX_TOKENS
    split = stub.Tokenize(messages.BatchedTokenizeRequest(requests=[messages.TokenizeRequest(text="to")]))
    parameters.stopping.max_new_tokens = 1000
    try:
        stub.Generate(messages.BatchedGenerationRequest(requests=[request], params=parameters))
    except grpc.RpcError as error:
        print(error.code().name, error.details())
    print(stub.ModelInfo(messages.ModelInfoRequest()).max_sequence_length, split.responses[0].token_count)
"""


def test_a_generated_client_uses_all_methods(server: ReferenceServer, tmp_path: Path) -> None:
    (tmp_path / "generation.proto").write_text(proto_text())
    (tmp_path / "client.py").write_text(CLIENT)
    options = ["--proto_path=.", "--python_out=.", "--grpc_python_out=."]
    compiler = [sys.executable, "-m", "grpc_tools.protoc", *options, "generation.proto"]
    subprocess.run(compiler, cwd=tmp_path, check=True)
    program = [sys.executable, "client.py", server.grpc_address]
    ended = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert ended.stderr == ""
    assert ended.stdout == "INVALID_ARGUMENT max_new_tokens must be <= 30\n32 2\n"
