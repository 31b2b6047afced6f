"""Texts of failures: cleaned of terminal codes and control characters, and limited in size.

Sources, exceptions and tracebacks come from notebooks and kernels. Terminals and HTML pages show them.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Any, Final

from toolbox.features.notebooks.worker.execution_place import Ended
from toolbox.features.notebooks.worker.notebook_results import Fault
from toolbox.ground.kit import exit_codes

SOURCE_LENGTH: Final = 4_000
EXCEPTION_LENGTH: Final = 1_000
TRACEBACK_LENGTH: Final = 8_000
MESSAGE_LENGTH: Final = 500

_TERMINAL_CODES: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # control sequences, such as colours
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles, hyperlinks and other strings for a terminal
    r"|\x1b[ -/]*[0-~]?"
)
_CATEGORIES_LEFT_OUT: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_MEMORY_EXCEPTIONS: Final = frozenset(
    {"MemoryError", "_ArrayMemoryError", "OutOfMemoryError", "ResourceExhaustedError"}
)
_MEMORY_MESSAGES: Final = ("Cannot allocate memory", "RESOURCE_EXHAUSTED: Out of memory")


@dataclass(frozen=True)
class KernelError:
    """An exception in a cell, as a kernel reports it. The kernel can send anything."""

    name: str
    value: str
    traceback: str

    @classmethod
    def from_content(cls, content: Any) -> KernelError:
        """Return the exception in the content of a message of the kernel."""
        fields = content if isinstance(content, dict) else {}
        lines = fields.get("traceback")
        traceback = "\n".join(str(line) for line in lines) if isinstance(lines, list) else ""
        return cls(str(fields.get("ename") or ""), str(fields.get("evalue") or ""), traceback)

    @property
    def text(self) -> str:
        """The name and the message, such as `ValueError: no data`, limited in size."""
        joined = ": ".join(part for part in (self.name, abridged(self.value, EXCEPTION_LENGTH)) if part)
        return abridged(cleaned(joined), EXCEPTION_LENGTH).strip() or "an exception without a name"

    @property
    def advice(self) -> str:
        """A hint about the exception, to be appended to a message; empty if the exception needs no hint."""
        if self.name == "StdinNotImplementedError":
            return " A test cannot answer a request for input: use parameters, or mark the notebook as manual."
        return ""

    @property
    def fault(self) -> Fault:
        """OUT_OF_MEMORY if the exception says that memory is exhausted, else CODE."""
        is_memory = self.name in _MEMORY_EXCEPTIONS or any(text in self.value for text in _MEMORY_MESSAGES)
        return Fault.OUT_OF_MEMORY if is_memory else Fault.CODE


def cleaned(text: str) -> str:
    """Return a text without terminal codes, control characters and characters that change the direction of text."""
    plain = _TERMINAL_CODES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    if plain.isascii() and plain.isprintable():
        return plain
    return "".join(
        character
        for character in plain
        if character in "\n\t" or unicodedata.category(character) not in _CATEGORIES_LEFT_OUT
    )


def abridged(text: str, length: int) -> str:
    """Return a text of about `length` characters at most: a short beginning and a longer end of the text."""
    if len(text) <= length:
        return text
    head = length // 4
    return f"{text[:head]}\n... ({len(text) - length} characters are left out) ...\n{text[head - length :]}"


def cleaned_traceback(text: str) -> str:
    """Return a traceback that is cleaned and limited in size."""
    return abridged(cleaned(abridged(text, 8 * TRACEBACK_LENGTH)), TRACEBACK_LENGTH).strip("\n")


def cleaned_source(text: str) -> str:
    """Return the source of a cell, cleaned and limited to its beginning."""
    source = cleaned(text[: 2 * SOURCE_LENGTH])
    return source if len(source) <= SOURCE_LENGTH else f"{source[:SOURCE_LENGTH]}\n..."


def one_line(text: str, length: int = MESSAGE_LENGTH) -> str:
    """Return a text as one cleaned line of at most `length` characters."""
    line = " ".join(cleaned(text[: 4 * length]).split())
    return line if len(line) <= length else f"{line[: length - 3]}..."


def last_line(text: str) -> str:
    """Return the last line of a text that is not empty."""
    lines = [line for line in text[-TRACEBACK_LENGTH:].splitlines() if line.strip()]
    return one_line(lines[-1]) if lines else ""


def end_of_kernel(ended: Ended | None) -> str:
    """Return how a kernel ended, such as `the kernel was killed by SIGKILL`."""
    if ended is None:
        return "the kernel died or was restarted"
    if ended.message:
        return one_line(ended.message)
    if ended.status is None:
        return "the kernel died"
    if ended.status < 0:
        return f"the kernel was killed by {exit_codes.signal_name(-ended.status)}"
    return f"the kernel ended by itself with status {ended.status}"
