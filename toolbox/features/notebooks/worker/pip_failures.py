"""Finds out why pip failed: requirements that cannot be installed, or an index that does not answer.

pip has one exit status for both, and reports an index that does not answer as "no matching distribution". The reason is
only in the lines before that, so this module searches for messages of pip and urllib3.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from .failure_texts import one_line
from .notebook_results import Fault

_NO_ANSWER: Final = re.compile(
    r"Retrying \(Retry\(total=0"  # the last attempt of urllib3
    r"|Max retries exceeded"
    r"|too many 5\d\d error responses"
    r"|HTTP error 5\d\d\b"
    r"|Could not fetch URL .*(?:: 5\d\d Server Error|connection error|timed out|ssl certificate)"
    r"|Temporary failure in name resolution|Name or service not known"
    r"|(?:NameResolution|ReadTimeout|ConnectTimeout|NewConnection|ConnectionReset|IncompleteDownload)Error"
    r"|RemoteDisconnected|IncompleteRead|connection (?:to .* )?timed out",
    re.IGNORECASE,
)
_UNFETCHED: Final = re.compile(r"Could not fetch URL .* - skipping")
_NOT_FOUND: Final = ": 404 Client Error"  # not a failure: with several indexes, some do not have a package
_LOG_BYTES: Final = 32 * 2**20
_RECOVERED: Final = re.compile(r"Retrying \(Retry\(total=[1-9]")  # an attempt that failed, before further attempts
_NO_ENSUREPIP: Final = re.compile(r"ensurepip is not\b|No module named '?(?:ensurepip|venv)'?")
_FULL: Final = re.compile(r"No space left on device|Disk quota exceeded", re.IGNORECASE)
_REFUSED: Final = re.compile(r"Could not fetch URL .*: 4\d\d Client Error|is not a trusted or secure host")
_MAX_ERRORS: Final = 4
_MAX_UNFETCHED: Final = 10
_CREDENTIALS: Final = re.compile(r"(?<=://)[^/\s@]+@")


def masked(text: str) -> str:
    """Return a text without the credentials in URLs."""
    return _CREDENTIALS.sub("****@", text)


def unfetched(pip_log: Path) -> list[str]:
    """Return the lines of pip's own log that name pages of the index which pip could not fetch.

    pip prints these lines only with `--verbose`, among thousands of other lines.
    """
    try:
        with pip_log.open(encoding="utf-8", errors="replace") as file:
            lines = [match[0] for line in file.read(_LOG_BYTES).splitlines() if (match := _UNFETCHED.search(line))]
    except OSError:
        return []
    return [line for line in dict.fromkeys(lines) if _NOT_FOUND not in line][-_MAX_UNFETCHED:]


def is_disk_full(lines: Sequence[str]) -> bool:
    """Return whether messages of errors say that the disk is full."""
    return any(_FULL.search(line) for line in lines)


def explain(lines: Sequence[str], python: str) -> tuple[Fault, str]:
    """Return the fault and the message for the output of a failed installation.

    Args:
        lines: the last lines of the output.
        python: the interpreter, for the message.
    """
    if any(_NO_ENSUREPIP.search(line) for line in lines):
        return Fault.ENVIRONMENT, (
            f"{python} cannot make virtual environments: install its module venv, on Debian and Ubuntu with "
            "`apt-get install python3-venv`"
        )
    errors = [one_line(line.partition("ERROR:")[2]) for line in lines if line.lstrip().startswith("ERROR:")]
    errors += [one_line(line) for line in lines if _REFUSED.search(line)]
    shown = "; ".join(errors[-_MAX_ERRORS:]) or one_line(next((line for line in reversed(lines) if line.strip()), ""))
    unanswered = [line for line in lines if _NO_ANSWER.search(line) and not _RECOVERED.search(line)]
    if unanswered:
        return Fault.SERVER, f"the package index does not answer: {one_line(unanswered[-1], 500)}; {shown}"
    return Fault.ENVIRONMENT, f"the requirements cannot be installed: {shown}"
