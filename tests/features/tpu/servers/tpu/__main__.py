"""The test server as a process of its own, for trials by hand: `python -m tests.features.tpu.servers.tpu --directory
DIR`.

It ends when its standard input ends. It prints one line when it is ready; `ports.json` in the directory has its ports.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tests.features.tpu.servers.tpu import Server, Timings
from tests.servers.openssh import ServerError


def main() -> None:
    """Run a server until the end of the standard input."""
    parser = argparse.ArgumentParser("python -m tests.features.tpu.servers.tpu", description=__doc__)
    parser.add_argument("--directory", type=Path, required=True, help="files of the workers, and of the ports")
    parser.add_argument("--timings", type=json.loads, default={}, help="fields of Timings, as JSON")
    parser.add_argument("--shared", type=Path, help="directory of this machine that all workers see")
    parser.add_argument("--no-workers", dest="has_workers", action="store_false", help="only the API answers")
    arguments = vars(parser.parse_args())
    directory: Path = arguments["directory"]
    directory.mkdir(parents=True, exist_ok=True)
    arguments["timings"] = Timings(**arguments["timings"])
    try:
        with Server(**arguments) as server:
            names = ("endpoint", "rest_endpoint", "port", "ssh_port")
            (directory / "ports.json").write_text(json.dumps({name: getattr(server, name) for name in names}))
            print("ready", flush=True)  # noqa: T201 - the caller waits for this line
            sys.stdin.buffer.read()
    except ServerError as error:
        sys.exit(str(error))


main()
