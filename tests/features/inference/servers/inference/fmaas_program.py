"""
A program that behaves as a server of fmaas with one fault.

    python -m tests.features.inference.servers.inference.fmaas_program FAULT --grpc_port=PORT

It answers each request with the tokens of `SENTENCE`. The fault is the name of a function below, which answers streams.
"""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Iterable, Iterator, Sequence

from tests.features.inference.servers.inference.__main__ import SENTENCE, WITH_WRONG_TOKEN, log
from tests.features.inference.servers.inference.grpc_server import Context, GrpcServer, Script
from toolbox.features.inference.client.fmaas import generation_pb2 as fmaas


def dies(content: bytes, context: Context) -> Iterator[bytes]:
    """End in the middle of a stream."""
    del content, context
    yield from _stream(SENTENCE[:1])
    log("out of memory")
    os.kill(os.getpid(), signal.SIGKILL)


def wrong_token(content: bytes, context: Context) -> Iterator[bytes]:
    """Answer with one wrong token at position 7."""
    del content, context
    yield from _stream(WITH_WRONG_TOKEN)
    yield fmaas.GenerationResponse(
        stop_reason=fmaas.MAX_TOKENS, generated_token_count=len(SENTENCE)
    ).SerializeToString()


def _stream(tokens: Sequence[str]) -> Iterator[bytes]:
    yield fmaas.GenerationResponse(input_token_count=1).SerializeToString()
    for count, token in enumerate(tokens, start=1):
        message = fmaas.GenerationResponse(text=token, generated_token_count=count, tokens=[_token(token)])
        yield message.SerializeToString()


def _token(text: str) -> fmaas.TokenInfo:
    other = fmaas.TokenInfo.TopToken(text=" something", logprob=-2.5)
    return fmaas.TokenInfo(text=text, logprob=-0.1, top_tokens=[{"text": text, "logprob": -0.1}, other])


def _whole(tokens: Sequence[str]) -> Script:
    """Return a script that answers Generate. The answer to ModelInfo is the same bytes, which the worker ignores."""
    whole = fmaas.GenerationResponse(
        text="".join(tokens),
        input_token_count=1,
        generated_token_count=len(tokens),
        stop_reason=fmaas.MAX_TOKENS,
        tokens=map(_token, tokens),
    )
    content = fmaas.BatchedGenerationResponse(responses=[whole]).SerializeToString()

    def script(request: bytes, context: Context) -> Iterable[bytes]:
        del request, context
        return [content]

    return script


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("fault")
    parser.add_argument("--grpc_port", type=int, required=True)
    options = parser.parse_args()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # `sigwait` gets it whenever it comes
    whole = _whole(WITH_WRONG_TOKEN if options.fault == "wrong_token" else SENTENCE)
    server = GrpcServer(whole, globals()[options.fault], port=options.grpc_port)
    log("listening")
    signal.sigwait({signal.SIGTERM})
    server.stop()


if __name__ == "__main__":
    main()
