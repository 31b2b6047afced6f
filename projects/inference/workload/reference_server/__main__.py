"""
The command line of the server.

It prints a line when it listens on both ports. SIGTERM and SIGINT let the requests that are running end, for at most
some seconds. The exit status is 0 after one of these signals, 1 if the model cannot go on, and 2 if the server cannot
start; one line on stderr then gives the reason.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

try:
    import grpc.aio

    from checkpoint import CheckpointError, read

    from . import fmaas_api, http_connections, openai_api, openai_requests
    from .engine import MAX_JOBS, Engine
    from .generation import EngineError, Limits, StoppingError
    from .model import DTYPES, ModelError
    from .shards import ModelOptions, ShardedModel
    from .vocabulary import Vocabulary
except ModuleNotFoundError as error:
    print(f"reference_server: {sys.executable} has no module {error.name!r}", file=sys.stderr)
    sys.exit(2)

SECONDS_TO_END = 3
SECONDS_TO_REFUSE = 1  # after that


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit status."""
    options = parse_arguments(arguments)
    try:
        if options.training and (fault := _train(options.checkpoint, options.training)):
            print(f"reference_server: {fault}", file=sys.stderr)
            return 2
        asyncio.run(serve(options))
    except (CheckpointError, ModelError, OSError, MemoryError) as error:
        print(f"reference_server: {error}", file=sys.stderr)
        return 2
    except EngineError as error:
        print(f"reference_server: {error}", file=sys.stderr)
        return 1
    return 0


def _train(checkpoint: Path, settings: Path) -> str | None:
    """Train a missing model, and return why this is impossible; None on success."""
    from train import DivergedError  # a server that only serves needs fewer files
    from train_settings import SettingsError

    from .training import train_missing

    try:
        train_missing(checkpoint, settings)
    except (SettingsError, DivergedError) as error:
        return str(error)
    return None


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(prog="reference_server", description="Serve a trained model over HTTP and gRPC.")
    parser.add_argument("--checkpoint", type=Path, required=True, help="file that train.py has written")
    parser.add_argument("--training", type=Path, help="settings to train the model with if the checkpoint is missing")
    parser.add_argument("--model", help="name of the model for clients; the default is the name of the checkpoint")
    parser.add_argument("--dtype_str", choices=DTYPES, default="float32", help="type of the numbers of the model")
    parser.add_argument("--num_shard", type=_positive, default=1, help="number of processes of the model")
    parser.add_argument("--max_batch_size", type=_positive, default=8, help="number of texts generated at a time")
    parser.add_argument(
        "--max_sequence_length", type=_positive, help="tokens of a prompt and its continuation; default: the most"
    )
    parser.add_argument("--max_new_tokens", type=_positive, help="tokens of a continuation; default: the most")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=_port, default=8080, help="port for HTTP; 0: any")
    parser.add_argument("--grpc_port", type=_port, default=8033, help="port for gRPC; 0: any")
    return parser.parse_args(arguments)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a positive number, not {text!r}")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"must be a number up to 65535, not {text!r}")
    return int(text)


async def serve(options: argparse.Namespace) -> None:
    """Serve until a signal comes. Raise EngineError if the model cannot go on, and other errors before the start."""
    checkpoint = read(options.checkpoint)
    limits = _limits(options, checkpoint.shape.context)
    model_options = ModelOptions(
        checkpoint=options.checkpoint,
        dtype=options.dtype_str,
        shards=options.num_shard,
        slots=options.max_batch_size,
        length=limits.max_sequence_length,
    )
    with contextlib.closing(ShardedModel(checkpoint, model_options)) as model:
        engine = Engine(model, Vocabulary(checkpoint.characters), limits, slots=options.max_batch_size)
        model.watch(engine.fail)
        try:
            await _listen(engine, options)
        finally:
            engine.stop()


def _limits(options: argparse.Namespace, context: int) -> Limits:
    if options.max_batch_size > MAX_JOBS:
        raise ModelError(f"--max_batch_size must be at most {MAX_JOBS}, because the server accepts no more requests")
    length = options.max_sequence_length or context
    if not 2 <= length <= context:
        raise ModelError(f"--max_sequence_length must be between 2 and {context}, which is the context of the model")
    new = options.max_new_tokens or length - 1
    if new >= length:
        raise ModelError(f"--max_new_tokens must be below {length}, because the prompt has at least one token")
    return Limits(max_sequence_length=length, max_new_tokens=new)


async def _listen(engine: Engine, options: argparse.Namespace) -> None:
    name = options.model or options.checkpoint.stem
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    with socket.create_server((options.host, options.port), family=family) as http_socket:
        # Connections inherit this option. asyncio does not set it for sockets that `create_server` has made.
        http_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        rpc_server, grpc_port = await _start_grpc(engine, name, options)
        application = openai_api.application(engine, name)
        http_server = http_connections.Server(application, seconds_to_end=SECONDS_TO_END + SECONDS_TO_REFUSE)
        serving = asyncio.create_task(http_server.serve([http_socket]))
        port = http_socket.getsockname()[1]
        print(f"{name} is served on {options.host}, port {port} (HTTP) and {grpc_port} (gRPC)", flush=True)
        signalled = asyncio.create_task(stopped.wait())
        ends: list[asyncio.Future[Any]] = [signalled, engine.failure, serving]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        signalled.cancel()
        has_failed = engine.failure.done()
        http_server.should_exit = True
        stopping = StoppingError(
            f"the server is stopping, and the request was not finished in {SECONDS_TO_END} seconds"
        )
        last_call = asyncio.get_running_loop().call_later(SECONDS_TO_END, engine.fail, stopping)
        await asyncio.gather(serving, rpc_server.stop(SECONDS_TO_END + SECONDS_TO_REFUSE))
        last_call.cancel()
    if has_failed:
        engine.failure.result()


async def _start_grpc(engine: Engine, name: str, options: argparse.Namespace) -> tuple[grpc.aio.Server, int]:
    options_of_grpc = {
        "grpc.so_reuseport": 0,  # else two servers can share a port
        "grpc.max_receive_message_length": openai_requests.MAX_BODY_BYTES,
        # End connections of clients that do nothing, or that have vanished. A client connects again for its next call.
        "grpc.server_handshake_timeout_ms": 10_000,
        "grpc.max_connection_idle_ms": 600_000,
        "grpc.keepalive_time_ms": 20_000,
        "grpc.keepalive_timeout_ms": 20_000,
        "grpc.max_concurrent_streams": MAX_JOBS,  # of each connection
    }
    server = grpc.aio.server(options=list(options_of_grpc.items()))
    server.add_generic_rpc_handlers([fmaas_api.handler(fmaas_api.Service(engine, name))])
    host = f"[{options.host}]" if ":" in options.host else options.host
    try:
        port = server.add_insecure_port(f"{host}:{options.grpc_port}")
    except RuntimeError as error:
        raise OSError(f"cannot listen on port {options.grpc_port} of {options.host}: {error}") from error
    await server.start()
    return server, port


if __name__ == "__main__":
    sys.exit(main())
