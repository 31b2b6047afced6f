"""The logs of cells are shown in whole lines with the name of the cell and without control sequences."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from toolbox.reports.terminal.cell_logs import _Log


class Terminal(io.TextIOWrapper):
    """A stream that may claim to be a terminal."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8")
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    @property
    def content(self) -> bytes:
        self.flush()
        buffer = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue()


def shown(tmp_path: Path, *pieces: bytes, prefix: str = "", is_terminal: bool = False) -> bytes:
    """Return the output for a log that grows by these pieces."""
    output = Terminal(is_terminal=is_terminal)
    log = _Log(tmp_path / "stdout.log", output, prefix)
    log.show_new()  # the file does not exist yet
    for piece in pieces:
        with log.file.open("ab") as stream:
            stream.write(piece)
        log.show_new()
    log.show_rest()
    return output.content


def test_a_log_is_shown_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.delenv("TF_BUILD", raising=False)
    content = b"a\x1b[31mred\xff\n\n::stop-commands::\nno end"
    assert shown(tmp_path, content) == content


@pytest.mark.parametrize("variable", ["GITHUB_ACTIONS", "TF_BUILD"])
def test_workflow_commands_in_a_log_are_disabled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "true")
    assert shown(tmp_path, b"a\n::stop-", b"commands::\n##[error]b\x07\n") == b"a\n: :stop-commands::\n## [error]b\n"


@pytest.mark.parametrize("cut", range(1, 12))
def test_split_control_sequences_are_removed(tmp_path: Path, cut: int) -> None:
    content = b"a\x1b]0;evil\x07b\xe2\x80\xaec\n"
    assert shown(tmp_path, content[:cut], content[cut:], is_terminal=True) == b"abc\n"


def test_each_line_of_several_cells_begins_with_the_cell(tmp_path: Path) -> None:
    assert shown(tmp_path, b"one\ntw", b"o\nthree", prefix="x=a | ") == b"x=a | one\nx=a | two\nx=a | three\n"


def test_a_line_without_an_end_is_shown_in_pieces(tmp_path: Path) -> None:
    assert shown(tmp_path, b"x" * 200_000) == b"x" * 200_000


def test_a_log_that_replaces_a_live_copy_is_shown_from_its_start(tmp_path: Path) -> None:
    output = Terminal(is_terminal=False)
    log = _Log(tmp_path / "stdout.log", output)
    log.file.write_text("one\nof the other stream\nhalf")
    log.show_new()
    (tmp_path / "exact").write_text("one\ntwo\n")
    (tmp_path / "exact").replace(log.file)
    log.show_new()
    assert output.content == b"one\nof the other stream\none\ntwo\n"
