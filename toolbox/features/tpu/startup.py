"""Wraps the startup script of a TPU, so that its end can be seen by SSH.

Google's guest agent executes the metadata `startup-script` as root at each start of a worker, but does not report how
the script ended. The wrapper writes the output and the exit status to files, which `probe` reads on the worker.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.text import truncate

DIRECTORY: Final = "/var/lib/topgallant/startup"
"""The directory on a worker with the script and its output."""
STATUS: Final = "/run/topgallant-startup-status"
"""The file on a worker with the exit status of the script. Each start of the worker empties `/run`."""
_MARK: Final = "topgallant-startup"
_OUTPUT_LINES: Final = 3
_OUTPUT_BYTES: Final = 4000
_STATUS: Final = re.compile(rf"{_MARK} (?:(?P<status>[0-9]{{1,3}})|(?P<word>running|missing))")
_WRAPPER: Final = """\
#!/bin/bash
# Executes the startup script, and writes its output and its exit status to files that the SSH user can read.
directory={directory}
umask 022
mkdir -p "$directory"
cd "$directory" || exit 1
rm -f {status}
base64 -d >script <<'END'
{script}
END
chmod 700 script
if [ "$(head -c 2 script)" = '#!' ]; then
  ./script >output 2>&1 </dev/null
else
  bash ./script >output 2>&1 </dev/null
fi
status=$?
echo "$status" >{status}.new
mv {status}.new {status}
exit "$status"
"""
# Waits for at most {seconds} seconds, so that one connection sees the end of the script early.
_PROBE: Final = """\
cd {directory} 2>/dev/null || {{ echo '{mark} missing'; exit 0; }}
left={seconds}
while [ ! -e {status} ] && [ "$left" -gt 0 ]; do sleep 1; left=$((left - 1)); done
if [ -e {status} ]; then echo "{mark} $(cat {status})"; tail -c {bytes} output; else echo '{mark} running'; fi
"""


@dataclass(frozen=True, slots=True)
class Startup:
    """The state of the startup script of a worker.

    Args:
        status: the exit status of the script; None if it has not ended.
        message: why the script has not ended, or the last lines of its output.
    """

    status: int | None
    message: str = ""


def wrapped(script: str) -> str:
    """Return the value of the metadata `startup-script`. Without a script, only the end of the boot is recorded."""
    encoded = base64.encodebytes((script or "true\n").encode()).decode().strip()
    return _WRAPPER.format(directory=DIRECTORY, status=STATUS, script=encoded)


def probe(seconds: int) -> str:
    """Return the shell command that prints the state of the startup script, after waiting for its end.

    Args:
        seconds: the longest time to wait.
    """
    return _PROBE.format(directory=DIRECTORY, status=STATUS, mark=_MARK, seconds=seconds, bytes=_OUTPUT_BYTES)


def parse(lines: Iterable[str]) -> Startup | None:
    """Return what `probe` printed; None if its output is missing. Output of the login shell may precede it."""
    texts = iter(lines)
    for line in texts:
        if match := _STATUS.fullmatch(line.strip()):
            if match["status"] is not None:
                return Startup(int(match["status"]), _last_lines(texts))
            is_running = match["word"] == "running"
            return Startup(None, "the startup script is running" if is_running else "the startup script has not begun")
    return None


def _last_lines(lines: Iterable[str]) -> str:
    texts = [truncate(clean(line).strip()) for line in lines]
    return "\n".join([text for text in texts if text][-_OUTPUT_LINES:])
