"""The files of a workload are found, opened and searched safely."""

import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from toolbox.records.runs.evidence_files import (
    LONGEST_MATCH,
    PIECE,
    Expression,
    LineText,
    RelativeFile,
    RelativeGlob,
    matching,
    readable,
    search,
)


def found(directory: Path, content: str, pattern: str) -> list[tuple[int, str]]:
    """Return the line and the text of each match in a log of this content."""
    (directory / "log").write_text(content)
    return [(hit.line, hit.match[0]) for hit in search(directory, "log", pattern)]


@pytest.mark.parametrize(
    ("content", "pattern", "expected"),
    [
        ("a1 a2\n\na3", r"a\d", [(1, "a1"), (1, "a2"), (3, "a3")]),
        ("a\n\nb\n", "^$", [(2, "")]),
        ("", "^", []),
        ("a\nb", r"a\s*b", []),
        ("10%\r20%\r\n30%", r"\d+%$", [(1, "10%"), (2, "20%"), (3, "30%")]),
        ("a\x0bb\x0cc\u2028d", "[a-d]", [(1, "a"), (1, "b"), (1, "c"), (1, "d")]),
    ],
)
def test_each_match_in_each_line_is_found_in_order(
    tmp_path: Path, content: str, pattern: str, expected: list[tuple[int, str]]
) -> None:
    assert found(tmp_path, content, pattern) == expected


@pytest.mark.parametrize("ending", ["", "\n", " 999\nnext", "-" * 2 * LONGEST_MATCH])
@pytest.mark.parametrize(
    "before",
    [PIECE + shift for shift in (-LONGEST_MATCH - 3, -LONGEST_MATCH, -7, -5, -4, -1, 0, 1)]
    + [2 * PIECE - 2, 3 * PIECE],
)
def test_a_match_is_found_once_wherever_a_long_line_is_split(tmp_path: Path, before: int, ending: str) -> None:
    content = "-" * before + "(12345)" + ending
    assert [text for _, text in found(tmp_path, content, r"\(\d+\)")] == ["(12345)"]
    assert found(tmp_path, content, r"(?<=-\()\b\d+\b(?=\))") == [(1, "12345")]
    assert found(tmp_path, content.split()[0], r"\d+") == [(1, "12345")]
    assert found(tmp_path, content, r"^-") == [(1, "-")]


def test_all_matches_in_a_long_line_are_found(tmp_path: Path) -> None:
    numbers = [f"<{number}>" for number in range(40_000)]
    assert [text for _, text in found(tmp_path, "".join(numbers), r"<\d+>")] == numbers
    assert len(found(tmp_path, "x" * (2 * PIECE), "x")) == 2 * PIECE


def test_a_pattern_for_the_end_of_a_line_matches_once_in_a_long_line(tmp_path: Path) -> None:
    content = ("x" * PIECE + "\n") * 3
    assert found(tmp_path, content, "x$") == [(1, "x"), (2, "x"), (3, "x")]


def test_a_gigantic_line_takes_little_memory(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        for _ in range(32):
            log.write(b"." * (1 << 20))
        log.write(b"needle")
    tracemalloc.start()
    assert [hit.line for hit in search(tmp_path, "log", "needle")] == [1]
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


def test_an_excerpt_is_one_short_printable_line(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"\x1b[31mstep\x0c \xff\n" + b"a" * 300 + b"step" + b"b" * 300)
    short, long = (hit.excerpt for hit in search(tmp_path, "log", "step"))
    assert short == r"'\x1b[31mstep\x0c " + "\ufffd'"
    assert long == f"...'{'a' * 25}step{'b' * 71}'..."


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "loop", "folder", "nothing", "folder/nothing", "x" * 300):
        with (
            pytest.raises(ValueError, match=f"^{name} (does not exist|is not a|cannot be read: )"),
            readable(tmp_path, name),
        ):
            pass


def test_a_fault_while_reading_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "a").touch()

    def read() -> None:
        with readable(tmp_path, "a") as path:
            path.unlink()  # the file is deleted after it was found
            path.read_bytes()

    with pytest.raises(ValueError, match=r"^a cannot be read: No such file or directory$"):
        read()


def test_matching_files_are_sorted_without_folders(tmp_path: Path) -> None:
    for name in ("b/2", "a/3", "a/1"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "a" / "gone").symlink_to("nowhere")
    assert [str(path.relative_to(tmp_path)) for path in matching(tmp_path, "**/*")] == ["a/1", "a/3", "b/2"]
    assert matching(tmp_path, "x" * 300) == []


@pytest.mark.parametrize("name", ["", ".", "/", "/etc/passwd", "..", "../x", "a/../../x", "a/..", "a\0b"])
@pytest.mark.parametrize("kind", [RelativeFile, RelativeGlob])
def test_a_file_outside_of_the_directory_is_refused(kind: Any, name: str) -> None:
    with pytest.raises(ValueError, match="must be a relative path without"):
        TypeAdapter(kind).validate_python(name)


@pytest.mark.parametrize("name", ["a", "a/b", "./a", ".a", "a..b", "...", "a b\n", "**/*", "a/**/b*"])
@pytest.mark.parametrize("kind", [RelativeFile, RelativeGlob])
def test_a_file_inside_of_the_directory_is_accepted_unchanged(kind: Any, name: str) -> None:
    assert TypeAdapter(kind).validate_python(name) == name


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (RelativeGlob, "**.pb"), (RelativeGlob, "a/**b/c"), (RelativeGlob, "**"), (RelativeGlob, "a/**"),
        (Expression, "("), (Expression, ""), (Expression, "*"), (Expression, "(?P<value"),
        (LineText, ""), (LineText, "a\n"), (LineText, "\r"), (LineText, "x" * (LONGEST_MATCH + 1)),
    ],
)  # fmt: skip
def test_a_pattern_that_cannot_match_is_refused(kind: Any, value: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        TypeAdapter(kind).validate_python(value)
