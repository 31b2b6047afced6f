"""Secret values are masked in each form in which programs print them."""

import json
import shlex
import stat
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from pathlib import Path

import pytest
import yaml

from toolbox.ground.system import redaction
from toolbox.ground.system.redaction import Redactor, Swept

KEY = "-----BEGIN KEY-----\nbWFueSBieXRlcw==\nb3RoZXIgYnl0ZXM=\n-----END KEY-----\n"
AWKWARD = ["plain-text", 'with "quotes" and \\', "it's 'quoted'", "naïve ☃ café", "tab\there", KEY]


@pytest.fixture
def redactor() -> Redactor:
    found = Redactor()
    found.add(AWKWARD)
    return found


def test_nothing_is_masked_before_a_value_is_known() -> None:
    assert Redactor()("plain-text") == "plain-text"


@pytest.mark.parametrize("value", AWKWARD)
@pytest.mark.parametrize(
    "write",
    [
        str,
        json.dumps,
        lambda value: json.dumps(value, ensure_ascii=False),
        repr,
        shlex.quote,
        lambda value: value.replace("\n", "\r\n"),
        lambda value: yaml.safe_dump({"key": value}, default_style="'", width=1000, allow_unicode=True),
    ],
    ids=["unchanged", "json", "json with unicode", "repr", "shell", "pseudo-terminal", "yaml"],
)
def test_a_value_is_masked_in_all_its_forms(redactor: Redactor, value: str, write: Callable[[str], str]) -> None:
    text = redactor(f"before {write(value)} after")
    longest = max(value.splitlines(), key=len)
    assert "***" in text
    assert longest.strip(" -") not in text
    assert text.startswith("before ")
    assert text.endswith(" after")


def test_a_single_line_of_a_key_is_masked(redactor: Redactor) -> None:
    assert redactor("echo bWFueSBieXRlcw== | base64 -d") == "echo *** | base64 -d"


def test_a_value_that_contains_another_value_is_masked_completely() -> None:
    redactor = Redactor()
    redactor.add(["token", "token-and-more"])
    assert redactor("token-and-more token") == "*** ***"


@pytest.mark.parametrize("value", ["", "a", "ab"])
def test_values_too_short_to_be_secret_leave_the_text_readable(value: str) -> None:
    redactor = Redactor()
    redactor.add([value])
    assert redactor("a table about") == "a table about"


def test_values_can_be_added_by_any_thread() -> None:
    redactor = Redactor()
    values = [f"secret-{number:03d}" for number in range(50)]
    with ThreadPoolExecutor(50) as threads:
        list(threads.map(lambda value: redactor.add([value]), values))
    assert set(redactor(" ".join(values)).split()) == {"***"}


class Word(StrEnum):
    PASSED = "passed"


def test_only_texts_in_a_nested_structure_are_masked() -> None:
    redactor = Redactor()
    redactor.add(["1234", "passed"])
    value = {"a 1234": ["1234!", 1234, 0.1234, None, True, Word.PASSED], "b": ("passed", {"c": "1234"})}
    assert redactor.redact_nested(value) == {
        "a ***": ["***!", 1234, 0.1234, None, True, Word.PASSED],
        "b": ("***", {"c": "***"}),
    }


def test_a_sweep_rewrites_and_returns_the_files_that_contain_a_value(redactor: Redactor, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "log").write_text("before plain-text after")
    (tmp_path / "clean").write_text("nothing here")
    assert redactor.sweep(tmp_path) == ([tmp_path / "deep" / "log"], [], [])
    assert (tmp_path / "deep" / "log").read_text() == "before *** after"
    assert (tmp_path / "clean").read_text() == "nothing here"


BINARY = {
    "NUL at the start": b"\x00\xff plain-text \xfe",
    "NUL far behind": b"plain-text" + b"x" * (1 << 14) + b"\x00",
    "not UTF-8": b"\x89PNG\r\n" + bytes(range(128, 255)) + b"plain-text",
}


@pytest.mark.parametrize("content", BINARY.values(), ids=BINARY)
def test_a_sweep_reports_a_binary_file_and_does_not_change_it(
    redactor: Redactor, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "model.bin").write_bytes(content)
    assert redactor.sweep(tmp_path) == ([], [tmp_path / "model.bin"], [])
    assert (tmp_path / "model.bin").read_bytes() == content


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("stdout.log", b"\x00 plain-text"),
        ("latin-1.txt", "na\u00efve caf\u00e9 plain-text ".encode("latin-1") * 3),
        ("coloured.txt", b"\x1b[31mplain-text\x1b[0m\x07"),
    ],
)
def test_a_sweep_masks_a_text_with_odd_bytes_in_it(
    redactor: Redactor, tmp_path: Path, name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    assert redactor.sweep(tmp_path).masked == [tmp_path / name]
    assert (tmp_path / name).read_bytes() == content.replace(b"plain-text", b"***")


def test_a_sweep_of_a_large_file_takes_little_memory(redactor: Redactor, tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as stream:
        for _ in range(32):
            stream.write(b"a line of a log\n" * (1 << 16))
        stream.write(b"plain-text")
    tracemalloc.start()
    redactor.sweep(tmp_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (tmp_path / "log").stat().st_size == 32 << 20 | 3
    assert peak < 8 << 20


def put_holes(file: Path, content: bytes = b"") -> None:
    """Write a sparse file of a terabyte, which needs little space on the disk."""
    with file.open("wb") as stream:
        stream.truncate(1 << 40)
        stream.seek(1 << 39)
        stream.write(content)


def test_a_sweep_does_not_read_the_holes_of_a_file(redactor: Redactor, tmp_path: Path) -> None:
    redactor.add(["a-secret-value"])
    put_holes(tmp_path / "empty")
    put_holes(tmp_path / "data", b"a-secret-value")
    assert redactor.sweep(tmp_path) == Swept([], [tmp_path / "data"], [])


def test_a_sweep_changes_neither_links_nor_their_targets(redactor: Redactor, tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    inside.mkdir()
    outside.write_text("plain-text")
    (inside / "link").symlink_to(outside)
    (inside / "dangling").symlink_to(tmp_path / "nowhere")
    assert redactor.sweep(inside) == ([], [], [])
    assert outside.read_text() == "plain-text"


@pytest.mark.parametrize("name", ["x" * 255, "☃" * 85, "with\nnewline", ".hidden"])
def test_a_sweep_rewrites_files_with_any_name(redactor: Redactor, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("plain-text")
    assert redactor.sweep(tmp_path)[0] == [tmp_path / name]
    assert [path.read_text() for path in tmp_path.iterdir()] == ["***"]


def test_a_rewritten_file_is_private(redactor: Redactor, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("plain-text")
    (tmp_path / "log").chmod(0o644)
    redactor.sweep(tmp_path)
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o600


def test_a_sweep_without_secrets_reads_nothing(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("text")
    assert Redactor().sweep(tmp_path)[0] == []


@pytest.fixture
def _redactor_of_the_process() -> Iterator[None]:
    before = redaction.current()
    yield
    redaction.use(before)


@pytest.mark.usefixtures("_redactor_of_the_process")
def test_the_redactor_of_the_process_stays_the_same() -> None:
    assert redaction.current() is redaction.current()
    redaction.use(other := Redactor())
    assert redaction.current() is other


@pytest.mark.usefixtures("_redactor_of_the_process")
def test_a_thread_has_the_redactor_of_the_process() -> None:
    redaction.use(redactor := Redactor())
    with ThreadPoolExecutor() as threads:
        assert threads.submit(redaction.current).result() is redactor


KEY = '{\n  "type": "service_account",\n  "private_key": "-----BEGIN KEY-----\\nMIIEvQ\\n"\n}\n'


@pytest.mark.parametrize(
    "shown",
    [
        KEY,
        json.dumps(KEY),
        json.dumps({"stdout_lines": KEY.splitlines()}),
        json.dumps(json.dumps(KEY.splitlines())),
        KEY.replace("\n", "\r\n"),
        KEY.splitlines()[2],
        json.loads(KEY)["private_key"],
    ],
    ids=["unchanged", "JSON", "lines in JSON", "lines in JSON in JSON", "terminal", "one line", "decoded"],
)
def test_a_key_of_several_lines_with_quotes_is_masked_in_all_its_forms(shown: str) -> None:
    redactor = Redactor()
    redactor.add([KEY])
    assert "MIIEvQ" not in redactor(shown)


def test_a_value_on_the_border_of_two_chunks_is_masked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_CHUNK_BYTES", 8)
    redactor = Redactor()
    redactor.add(["hunter2-hunter2"])
    (tmp_path / "log").write_text("12345hunter2-hunter2 and more")
    assert redactor.sweep(tmp_path).masked == [tmp_path / "log"]
    assert (tmp_path / "log").read_text() == "12345*** and more"


def test_a_file_that_cannot_be_read_is_reported_and_other_files_are_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    redactor = Redactor()
    redactor.add(["hunter2"])
    for name in ("a", "b"):
        (tmp_path / name).write_text("hunter2")
    holds = redaction._holds_any

    def refuse_a(file: Path, patterns: list[bytes]) -> bool:
        if file.name == "a":
            raise PermissionError(13, "Permission denied")
        return holds(file, patterns)

    monkeypatch.setattr(redaction, "_holds_any", refuse_a)
    swept, _, (fault,) = redactor.sweep(tmp_path)
    assert swept == [tmp_path / "b"]
    assert "Permission denied" in fault
