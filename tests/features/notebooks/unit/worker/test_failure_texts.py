"""Texts of notebooks and kernels are cleaned and limited before anybody sees them."""

from __future__ import annotations

import pytest

from toolbox.features.notebooks.worker import failure_texts
from toolbox.features.notebooks.worker.execution_place import Ended
from toolbox.features.notebooks.worker.failure_texts import KernelError
from toolbox.features.notebooks.worker.notebook_results import Fault


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("\x1b[0;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://host\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPq#0\x1b\\image", "image"),
        ("\x9b31mred", "31mred"),
        ("a\x00b\x08c", "abc"),
        ("user\u202etxt.exe\u2066", "usertxt.exe"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("half \ud800 pair", "half  pair"),
        ("one\r\ntwo\rthree\tfour", "one\ntwo\nthree\tfour"),
        ("Grüße 数据 😀", "Grüße 数据 😀"),
        ("\x1b", ""),
    ],
)
def test_terminal_codes_and_control_characters_are_removed(text: str, plain: str) -> None:
    assert failure_texts.cleaned(text) == plain


def test_many_unfinished_terminal_codes_take_linear_time() -> None:
    assert failure_texts.cleaned("\x1b]" * 500_000) == ""
    assert failure_texts.cleaned("\x1b[" * 500_000) == ""


def test_a_long_text_keeps_its_beginning_and_its_end() -> None:
    text = failure_texts.abridged("begin" + "x" * 1000 + "end", 100)
    assert text.startswith("begin")
    assert text.endswith("end")
    assert "(908 characters are left out)" in text


def test_a_message_is_one_short_line() -> None:
    assert failure_texts.one_line("first\n  second\x1b[1m third") == "first second third"
    line = failure_texts.one_line("word " * 10_000)
    assert len(line) <= failure_texts.MESSAGE_LENGTH
    assert line.endswith("...")


def test_a_long_source_is_truncated() -> None:
    assert len(failure_texts.cleaned_source("x = 1\n" * 10_000)) < failure_texts.SOURCE_LENGTH + 10


@pytest.mark.parametrize("content", [None, [], "x", {}, {"ename": None, "evalue": [], "traceback": 3}])
def test_an_exception_that_is_not_as_the_protocol_says_has_a_text(content: object) -> None:
    assert KernelError.from_content(content).text


def test_the_text_of_an_exception_is_limited() -> None:
    error = KernelError("Error", "x" * 100_000, "")
    assert len(error.text) < failure_texts.EXCEPTION_LENGTH + 100


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("MemoryError", "", Fault.OUT_OF_MEMORY),
        ("OSError", "[Errno 12] Cannot allocate memory", Fault.OUT_OF_MEMORY),
        ("OutOfMemoryError", "CUDA out of memory.", Fault.OUT_OF_MEMORY),
        ("XlaRuntimeError", "RESOURCE_EXHAUSTED: Out of memory while trying to allocate", Fault.OUT_OF_MEMORY),
        ("OSError", "[Errno 28] No space left on device", Fault.CODE),
        ("ValueError", "", Fault.CODE),
    ],
)
def test_exceptions_about_memory_are_out_of_memory(name: str, value: str, fault: Fault) -> None:
    assert KernelError(name, value, "").fault is fault


@pytest.mark.parametrize(
    ("ended", "text"),
    [
        (None, "the kernel died or was restarted"),
        (Ended(None), "the kernel died"),
        (Ended(0), "the kernel ended by itself with status 0"),
        (Ended(-11), "the kernel was killed by SIGSEGV"),
        (Ended(-99), "the kernel was killed by signal 99"),
        (Ended(-9, message="the kernel\nexceeded 1 GiB"), "the kernel exceeded 1 GiB"),
    ],
)
def test_the_end_of_a_kernel_is_described(ended: Ended | None, text: str) -> None:
    assert failure_texts.end_of_kernel(ended) == text
