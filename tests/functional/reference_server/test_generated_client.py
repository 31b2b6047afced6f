"""A client that grpcio-tools has generated from the definition talks to the reference server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.servers.reference_server import ReferenceServer
from toolbox.inference_client import fmaas

CLIENT = """
import sys, grpc, generation_pb2 as messages, generation_pb2_grpc as stubs
with grpc.insecure_channel(sys.argv[1]) as channel:
    stub = stubs.GenerationServiceStub(channel)
    parameters = messages.Parameters(stopping=messages.StoppingCriteria(max_new_tokens=4))
    request = messages.GenerationRequest(text="to be")
    whole = stub.Generate(messages.BatchedGenerationRequest(requests=[request, request], params=parameters))
    parts = list(stub.GenerateStream(messages.SingleGenerationRequest(request=request, params=parameters)))
    assert "".join(part.text for part in parts) == whole.responses[0].text == whole.responses[1].text
    assert parts[-1].stop_reason == messages.MAX_TOKENS
    split = stub.Tokenize(messages.BatchedTokenizeRequest(requests=[messages.TokenizeRequest(text="to")]))
    print(stub.ModelInfo(messages.ModelInfoRequest()).max_sequence_length, split.responses[0].token_count)
"""


def test_a_generated_client_uses_all_methods(server: ReferenceServer, tmp_path: Path) -> None:
    folder = Path(fmaas.__file__).parent
    options = [f"--proto_path={folder}", f"--python_out={tmp_path}", f"--grpc_python_out={tmp_path}"]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *options, "generation.proto"], check=True)
    (tmp_path / "client.py").write_text(CLIENT)
    program = [sys.executable, "client.py", server.grpc_address]
    ended = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout == "32 2\n"
