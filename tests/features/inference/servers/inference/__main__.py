"""
A program that behaves as an inference server with one fault.

    python -m tests.features.inference.servers.inference FAULT --port=PORT

It answers completions with the text "b", and requests for logprobs with the tokens of `SENTENCE`. The fault is the
name of a function below; `none` stands for no fault.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from tests.features.inference.servers.inference.http_server import (
    HttpRequest,
    HttpServer,
    choice,
    event,
    response,
    stream_head,
)

END: Final = threading.Event()
SENTENCE: Final = ("It", " was", " a", " dark", " and", " stormy", " night", ";", " the", " rain")
WITH_WRONG_TOKEN: Final = (*SENTENCE[:6], " day", *SENTENCE[7:])


def log(text: str) -> None:
    """Print a line, which the worker finds in the log."""
    print(text, flush=True)  # noqa: T201


def none(request: HttpRequest) -> Iterator[bytes]:
    """Answer properly."""
    yield from _answer(request, SENTENCE)


def wrong_token(request: HttpRequest) -> Iterator[bytes]:
    """Answer with one wrong token at position 7."""
    yield from _answer(request, WITH_WRONG_TOKEN)


def slow(request: HttpRequest) -> Iterator[bytes]:
    """Answer properly, with 0.6 seconds before each token."""
    yield from _answer(request, SENTENCE, delay=0.6)


def _answer(request: HttpRequest, sentence: Sequence[str], *, delay: float = 0) -> Iterator[bytes]:
    if request.path == "/health":
        yield response({})
        return
    tokens = sentence if request.body.get("logprobs") is not None else ["b"]
    if not request.body.get("stream"):
        END.wait(delay * len(tokens))
        yield response(choice("".join(tokens), "length", **_logprobs(request, tokens)))
        return
    yield stream_head()
    for token in tokens:
        END.wait(delay)
        yield event(choice(token, **_logprobs(request, [token])))
    yield event(choice("", "length")) + event("[DONE]")


def _logprobs(request: HttpRequest, tokens: Sequence[str]) -> dict[str, Any]:
    """Return the logprobs of an answer: each token, and after it the most probable other one."""
    if request.body.get("logprobs") is None:
        return {}
    top = [{token: -0.1, " something": -2.5} for token in tokens]
    return {"logprobs": {"tokens": list(tokens), "token_logprobs": [-0.1] * len(tokens), "top_logprobs": top}}


def dies(request: HttpRequest) -> Iterator[bytes]:
    """End in the middle of a stream."""
    if request.path == "/health" or not request.body.get("stream"):
        yield from none(request)
        return
    yield stream_head() + event(choice("b"))
    log("out of memory")
    os.kill(os.getpid(), signal.SIGKILL)


def kills_its_worker(request: HttpRequest) -> Iterator[bytes]:
    """Kill the worker, as the system does if memory runs out."""
    if request.path != "/health" and request.body.get("stream"):
        os.kill(os.getppid(), signal.SIGKILL)
    yield from none(request)


def falls_silent(request: HttpRequest) -> Iterator[bytes]:
    """Accept requests and answer nothing."""
    if request.path == "/health":
        yield response({})
    else:
        END.wait()


def sends_half_a_stream(request: HttpRequest) -> Iterator[bytes]:
    """End each stream after five chunks, without a stop reason."""
    if request.path != "/health" and request.body.get("stream"):
        yield stream_head() + b"".join(event(choice(token)) for token in SENTENCE[:5])
    else:
        yield from none(request)


def sends_nonsense(request: HttpRequest) -> Iterator[bytes]:
    """Answer with a web page."""
    yield response({}) if request.path == "/health" else response(b"<html>\x1b[31mlogin</html>", kind="text/html")


def never_ready(request: HttpRequest) -> Iterator[bytes]:
    """Answer that the model is still loading."""
    del request
    yield response({"status": "loading"}, status=503)


def ignores_sigterm(request: HttpRequest) -> Iterator[bytes]:
    """Answer properly, but do not end. A child process does not end either."""
    yield from none(request)


def repeats_the_key(request: HttpRequest) -> Iterator[bytes]:
    """Refuse each request, with the API key in the message and in the log."""
    if request.path == "/health":
        yield response({})
    else:
        log(f"refused {request.headers['authorization']}")
        yield response({"error": {"message": f"wrong key {request.headers['authorization']}"}}, status=401)


def spells_the_key(request: HttpRequest) -> Iterator[bytes]:
    """Put a part of the API key into each chunk of a stream."""
    if not request.body or not request.body.get("stream"):
        yield from none(request)
        return
    key = request.headers["authorization"]
    yield stream_head()
    yield from (event(choice(key[start : start + 3])) for start in range(0, len(key), 3))
    yield event(choice("", "length")) + event("[DONE]")


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("fault")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--taken", type=Path, help="file to which the first start writes its port and finds it taken")
    options = parser.parse_args()
    if options.fault == "dies_at_once":
        log("loading\nCUDA error: out of memory\n")
        sys.exit(3)
    if options.taken and _is_first_start(options.taken, options.port):
        sys.exit("OSError: [Errno 98] Address already in use")
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # `sigwait` gets it whenever it comes
    if options.fault == "ignores_sigterm":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
        log(f"child {child.pid}")
    server = HttpServer(globals()[options.fault], options.port)
    log("listening")
    if options.fault == "ignores_sigterm":
        signal.sigwait({signal.SIGINT})
    signal.sigwait({signal.SIGTERM})
    END.set()
    server.stop()


def _is_first_start(path: Path, port: int) -> bool:
    try:
        with path.open("x", encoding="ascii") as file:
            file.write(str(port))
    except FileExistsError:
        return False
    return True


if __name__ == "__main__":
    main()
