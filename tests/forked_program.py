"""A program in place of `run_toolbox.py` that executes its command line in a fork (`tests/forked_commands.py`).

Scripts of tests call it. The arguments are the socket of the server, and those of Topgallant. If the server refuses the
command line, for example because the script has changed variables that Python reads at its start, this program becomes
`run_toolbox.py`. It passes signals on, except that its own death by SIGKILL ends the command line with SIGTERM.
"""

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_PROGRAM = str(_ROOT / "run_toolbox.py")

sys.path.insert(0, str(_ROOT))  # Python is started with `-I -S`, which is quicker

from toolbox.ground.system.fork_connections import Connection, Refused  # noqa: E402


def main() -> None:
    """Execute the command line, and end as it has ended."""
    path, *args = sys.argv[1:]
    message = {"args": [_PROGRAM, *args], "env": dict(os.environ), "cwd": str(Path.cwd())}
    try:
        connection = Connection(path, message, b"", (0, 1, 2))
    except Refused:
        os.execv(sys.executable, [sys.executable, _PROGRAM, *args])

    def pass_on(number: int, _: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(connection.pid, number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, pass_on)
    status = connection.status()
    assert status is not None, "there is no timeout"
    exit_code = os.waitstatus_to_exitcode(status)
    if exit_code < 0:
        if -exit_code != signal.SIGKILL:
            signal.signal(-exit_code, signal.SIG_DFL)
        os.kill(os.getpid(), -exit_code)
    sys.exit(exit_code)


main()
