"""The check `files` requires files that a workload must write."""

from pathlib import Path

import pytest

from toolbox.ground.model.evidence import Judgement

from .conftest import Judge


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Return a file with content, two folders deep."""
    file = tmp_path / "profile" / "host" / "a.xplane.pb"
    file.parent.mkdir(parents=True)
    file.write_text("trace")
    return file


@pytest.mark.parametrize(
    ("glob", "count", "passed"),
    [
        ("**/*.xplane.pb", 1, True),
        ("**/*.xplane.pb", None, True),
        ("**/*.xplane.pb", 2, False),
        ("**/*.xplane.pb", 0, False),
        ("*.xplane.pb", None, False),
        ("*.xplane.pb", 0, True),
        ("profile", None, False),
        ("**/*", 1, True),
    ],
)
@pytest.mark.usefixtures("trace")
def test_the_number_of_matching_files_is_compared(judge: Judge, glob: str, count: int | None, passed: bool) -> None:
    judgement = judge(check="files", glob=glob, count=count)
    assert judgement.passed is passed
    assert glob in judgement.message
    assert ("at least one" if count is None else f"exactly {count}") in judgement.message


def test_too_many_files_fail_with_their_number(judge: Judge, trace: Path) -> None:
    trace.with_name("b.xplane.pb").write_text("trace")
    assert judge(check="files", glob="**/*.pb", count=1).message == "2 files match **/*.pb; required: exactly 1"


def test_an_empty_file_fails_and_is_named_unless_that_is_allowed(judge: Judge, trace: Path) -> None:
    trace.write_text("")
    assert judge(check="files", glob="**/*.pb").message == "empty files match **/*.pb: a.xplane.pb"
    assert judge(check="files", glob="**/*.pb", not_empty=False).passed


def test_a_dangling_link_is_not_a_file(judge: Judge, tmp_path: Path) -> None:
    (tmp_path / "a.pb").symlink_to("nowhere")
    assert not judge(check="files", glob="*.pb").passed


def test_only_a_few_of_many_empty_files_are_named(judge: Judge, tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"{number}.txt").touch()
    assert judge(check="files", glob="*.txt").message == "empty files match *.txt: 0.txt, 1.txt, 2.txt and 2 more"


def test_loops_of_links_are_ignored(judge: Judge, trace: Path, tmp_path: Path) -> None:
    (tmp_path / "itself").symlink_to("itself")
    (trace.parent / "up").symlink_to(tmp_path)
    assert judge(check="files", glob="**/*", count=1).passed


@pytest.mark.parametrize("glob", ["**/*", "x" * 300, "x/*/y"])
def test_no_file_matches_in_a_missing_directory(judge: Judge, tmp_path: Path, glob: str) -> None:
    (tmp_path / "x").touch()  # with the pattern x/*/y, this is a file in place of a directory
    (tmp_path / "x").rename(tmp_path.with_name("elsewhere"))
    tmp_path.rmdir()
    assert judge(check="files", glob=glob).message == f"0 files match {glob}; required: at least one"
    assert judge(check="files", glob=glob, count=0).passed


VALID = {
    "json": [b"{}", b'{"a": [1, NaN]}', b"1" * 5000, '"caf\u00e9 \u2603"'.encode()],
    "yaml": [b"a: 1", b"a: !custom {b: c}", b"a: 1\n---\nb: 2\n", b"{}", b"9" * 5000, b"a: 1\na: 2", b"<<: 1"],
}


@pytest.mark.parametrize(("kind", "content"), [(kind, text) for kind, texts in VALID.items() for text in texts])
def test_a_file_that_can_be_parsed_is_valid(judge: Judge, tmp_path: Path, kind: str, content: bytes) -> None:
    (tmp_path / "out").write_bytes(content)
    assert judge(check="files", glob="out", valid=kind) == Judgement(True, "1 files match out; required: at least one")


@pytest.mark.parametrize(
    ("kind", "content", "line", "message"),
    [
        ("json", b'{"a": 1,\n"b" 2}', 2, "out/b:2 is not JSON: Expecting ':' delimiter"),
        ("json", b"{}\n{}", 2, "out/b:2 is not JSON: Extra data"),
        ("json", b'["\n', 1, "out/b:1 is not JSON: Invalid control character at"),
        ("json", b'{\n"\xff"}', 2, "out/b:2 is not JSON: it is not UTF-8"),
        ("json", b"[" * 100_000, None, "out/b is not JSON: it is nested too deeply"),
        ("yaml", b"a: 1\nb: [1,\n", 3, "out/b:3 is not YAML: expected the node content, but found '<stream end>'"),
        ("yaml", b"a: 1\nb: *c", 2, "out/b:2 is not YAML: found undefined alias 'c'"),
        ("yaml", b"a: 1\nb: \xff", 2, "out/b:2 is not YAML: it is not UTF-8"),
        ("yaml", "a: \u2603\n\nb: \x01".encode(), 3, "out/b:3 is not YAML: special characters are not allowed"),
        ("yaml", b"[" * 100_000, None, "out/b is not YAML: it is nested too deeply"),
        ("yaml", b'"\\UFFFFFFFF"', None, "out/b is not YAML: Python int too large to convert to C int"),
    ],
)
def test_a_file_that_cannot_be_parsed_fails_with_the_line_of_the_error(
    judge: Judge, tmp_path: Path, kind: str, content: bytes, line: int | None, message: str
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").write_text("{}")
    (tmp_path / "out" / "b").write_bytes(content)
    assert judge(check="files", glob="out/*", valid=kind) == Judgement(False, message, "out/b", line)


def test_an_empty_file_is_valid_yaml_but_not_valid_json(judge: Judge, tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    assert judge(check="files", glob="out", not_empty=False, valid="yaml").passed
    assert judge(check="files", glob="out", not_empty=False, valid="json").line == 1


def test_a_wrong_count_fails_even_if_all_files_are_valid(judge: Judge, trace: Path) -> None:
    trace.write_text("{}")
    assert judge(check="files", glob="**/*.pb", count=2, valid="json").message.startswith("1 files match")


def test_a_name_with_a_line_break_is_quoted(judge: Judge, tmp_path: Path) -> None:
    (tmp_path / "a\nb").write_text("{")
    judgement = judge(check="files", glob="*", valid="json")
    assert judgement.message.startswith(r"'a\nb':1 is not JSON")
    assert judgement.file == "a\nb"
