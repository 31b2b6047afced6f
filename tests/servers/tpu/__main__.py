"""The test server as a process of its own: `python -m tests.servers.tpu --directory DIR`.

It ends when its standard input ends, so that it does not survive the tests. It prints one line when it is ready.
`control.Remote` speaks to it over a socket: one request and one answer per connection, each a line of JSON.
"""

from __future__ import annotations

import argparse
import json
import socketserver
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from tests.servers.openssh import ServerError
from tests.servers.tpu.cloud import Timings
from tests.servers.tpu.control import PORTS, UNSUPPORTED
from tests.servers.tpu.local_server import Server


def main() -> None:
    """Run a server until the end of the standard input."""
    parser = argparse.ArgumentParser("python -m tests.servers.tpu", description=__doc__)
    parser.add_argument("--directory", type=Path, required=True, help="files of the workers, and of the control")
    parser.add_argument("--timings", type=json.loads, default={}, help="fields of Timings, as JSON")
    parser.add_argument("--port", type=int, default=0, help="port of the API over gRPC")
    parser.add_argument("--shared", type=Path, help="directory of this machine that all workers see")
    parser.add_argument("--no-workers", dest="has_workers", action="store_false", help="only the API answers")
    parser.add_argument("--frozen", dest="is_frozen", action="store_true", help="time stands still")
    arguments = vars(parser.parse_args())
    directory: Path = arguments["directory"]
    arguments["timings"] = Timings(**arguments["timings"])
    try:
        with Server(**arguments) as server, tempfile.TemporaryDirectory(prefix="tg-tpu-") as sockets:
            path = f"{sockets}/control"  # the path of a socket has to be short
            with _ControlServer(path, server) as control:
                threading.Thread(target=control.serve_forever, daemon=True).start()
                ports = {name: getattr(server, name) for name in ("port", "rest_port", "ssh_port")}
                (directory / PORTS).write_text(json.dumps({**ports, "socket": path}))
                print("ready", flush=True)  # noqa: T201 - the parent waits for this line
                sys.stdin.buffer.read()
                control.shutdown()
    except ServerError as error:
        print(error, file=sys.stderr)  # noqa: T201 - the reason why the tests are skipped
        sys.exit(UNSUPPORTED)


class _ControlServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def __init__(self, path: str, server: Server) -> None:
        super().__init__(path, _Handler)
        self.console = server


class _Handler(socketserver.StreamRequestHandler):
    server: _ControlServer

    def handle(self) -> None:
        request = json.loads(self.rfile.readline())
        self.wfile.write(json.dumps(self._answer(request)).encode() + b"\n")

    def _answer(self, request: Any) -> Any:
        try:
            return {"result": self.server.console.send(request["verb"], **request["arguments"])}
        except Exception as error:  # noqa: BLE001 - the client raises it
            return {"error": f"{type(error).__name__}: {error}"}


main()
