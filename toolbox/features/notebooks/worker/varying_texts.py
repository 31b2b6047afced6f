"""Replaces the parts of outputs that vary between two executions of a notebook, before the outputs are compared.

The regular expressions in this module need linear time. A regular expression of a configuration may need much longer.
So `configured_replacements` uses a separate process, and kills it when it takes too long.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from toolbox.features.notebooks.worker.time_limits import PATTERN_SECONDS

MAX_PATTERNS: Final = 50
MAX_PATTERN_LENGTH: Final = 1_000
_PROGRAM: Final = Path(__file__).with_name("pattern_replacement.py")

_NUMBER: Final = r"\d[\d,]{0,20}(?:\.\d{1,20})?(?:e[+-]?\d{1,4})?"  # limits avoid quadratic time for many digits
_UNIT: Final = r"(?:ns|µs|μs|us|ms|s|secs?|seconds?|min|mins|minutes?|h|hours?)"
_DAY: Final = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)(?:[a-z]{3,6})?"
_MONTH: Final = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)(?:[a-z]{1,6})?"
_CLOCK: Final = r"\d{1,2}:\d{2}:\d{2}(?:[.,]\d{1,9})?"

DEFAULTS: Final = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b", "<uuid>"),
        (r"\bat 0x[0-9a-fA-F]+|\b0x[0-9a-fA-F]{8,16}\b", "<address>"),
        (r"(?:/private)?/(?:tmp|var/tmp|var/folders)/[^\s'\"<>:,;()\[\]]+", "<temporary path>"),
        (r"\[\d{1,6}:\d{2}(?::\d{2})?<[^\]\n]{0,80}\]", "[<progress>]"),
        (rf"\b{_DAY},? (?:\d{{1,2}} )?{_MONTH}(?: +\d{{1,2}})?(?: {_CLOCK})?(?: [A-Z]{{3,4}})?(?: \d{{4}})?", "<date>"),
        (
            r"\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?(?: ?(?:Z|UTC|[+-]\d{2}:?\d{2}))?)?",
            "<date>",
        ),
        (r"\b(?:\d{1,2}/\d{1,2}/\d{4}|\d{4}/\d{1,2}/\d{1,2})\b", "<date>"),
        (rf"\b{_CLOCK}", "<time>"),
        (rf"\b{_NUMBER} ?{_UNIT}\b(?: {_NUMBER} ?{_UNIT}\b)?", "<duration>"),
        (r"\bof \d{1,9} runs?, [\d,]{1,20} loops? each", "of <n> runs, <n> loops each"),
        (r"\b(In|Out) ?\[\d+\]", r"\1[<n>]"),
        (r"\bT_[0-9a-f]{5}", "T_<id>"),  # the ids of styled tables of pandas
    )
)


class PatternError(ValueError):
    """The expressions of a configuration cannot be used."""


def without_defaults(text: str) -> str:
    """Return a text in which names such as `<duration>` replace the parts that always vary."""
    for pattern, replacement in DEFAULTS:
        text = pattern.sub(replacement, text)
    return text


def configured_replacements(texts: Sequence[str], patterns: Sequence[tuple[str, str]]) -> list[str]:
    """Return the texts after the replacements of a configuration.

    Raises:
        PatternError: a pattern is not a regular expression, is too long, or takes too long.
    """
    if not patterns or not texts:
        return list(texts)
    if len(patterns) > MAX_PATTERNS or max(len(part) for pair in patterns for part in pair) > MAX_PATTERN_LENGTH:
        raise PatternError(
            f"`ignore` can have {MAX_PATTERNS} expressions of at most {MAX_PATTERN_LENGTH} characters each"
        )
    for pattern, replacement in patterns:
        _check(pattern, replacement)
    return asyncio.run(_replaced(json.dumps({"patterns": [list(pair) for pair in patterns], "texts": list(texts)})))


def _check(pattern: str, replacement: str) -> None:
    try:
        re.compile(pattern).sub(replacement, "")
    except (re.error, IndexError, RecursionError, OverflowError) as error:
        raise PatternError(f"`{pattern[:100]}` in `ignore` is not a valid expression or replacement: {error}") from None


async def _replaced(request: str) -> list[str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", str(_PROGRAM), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(request.encode()), PATTERN_SECONDS)
    except asyncio.TimeoutError:
        raise PatternError(
            f"the expressions of `ignore` did not end within {PATTERN_SECONDS:g} s: avoid nested repetitions"
        ) from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if process.returncode:
        raise PatternError("the replacements of `ignore` need too much memory")
    texts: list[str] = json.loads(output)
    return texts
