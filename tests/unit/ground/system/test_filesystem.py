"""The files of a run are private and written atomically."""

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolbox.ground.kit import safe_files
from toolbox.ground.model.secrets import Secret
from toolbox.ground.model.verdicts import Verdict
from toolbox.ground.system import filesystem


@pytest.fixture(autouse=True)
def _generous_umask() -> Any:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_written_files_are_private(tmp_path: Path) -> None:
    directory = filesystem.make_directory(tmp_path / "step")
    filesystem.write_text(directory / "text", "x")
    filesystem.append_text(directory / "log", "x")
    assert mode(directory) == 0o700
    assert {mode(file) for file in directory.iterdir()} == {0o600}


def test_a_public_file_becomes_private_when_it_is_written_again(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("old")
    filesystem.write_text(tmp_path / "text", "new")
    assert mode(tmp_path / "text") == 0o600


def test_missing_directories_are_created(tmp_path: Path) -> None:
    assert filesystem.write_text(tmp_path / "a" / "b" / "text", "x").read_text() == "x"


def test_a_failed_write_keeps_the_old_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filesystem.write_text(tmp_path / "text", "old")

    def full(_self: Path, _target: Path) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="no space"):
        filesystem.write_text(tmp_path / "text", "new")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_text_that_is_not_unicode_is_escaped(tmp_path: Path) -> None:
    filesystem.write_text(tmp_path / "text", "caf\udce9 ☃")
    filesystem.append_text(tmp_path / "text", "\udcff")
    assert (tmp_path / "text").read_text() == "caf\\udce9 ☃\\udcff"


def test_json_is_read_as_it_was_written(tmp_path: Path) -> None:
    value = {"text": "☃ \udce9", "verdict": Verdict.FAILED, "path": tmp_path, "none": None}
    file = filesystem.write_json(tmp_path / "value.json", value)
    assert filesystem.read_json(file) == {"text": "☃ \udce9", "verdict": "failed", "path": str(tmp_path), "none": None}


def test_appended_text_goes_to_the_end(tmp_path: Path) -> None:
    filesystem.append_text(tmp_path / "log", "one\n")
    filesystem.append_text(tmp_path / "log", "two\n")
    assert (tmp_path / "log").read_text() == "one\ntwo\n"


@pytest.mark.parametrize(
    "value",
    [
        *("text", 1, 1.5, float("nan"), None, True, {}, [], (), [[], {}, [{}]]),
        {"a": [1, (2, 3), {"b": None, "é\n\u2028": 'x"y'}], "e": (), Verdict.PASSED: Verdict.FAILED},
        {"x": [{1: {"y": [1]}, None: 2, False: 3}]},
        {"path": Path("/p")},
    ],
)
def test_json_has_the_form_of_the_standard_library(value: Any) -> None:
    assert filesystem.dump_json(value) == json.dumps(value, indent=2, default=str, ensure_ascii=False) + "\n"


def test_json_never_shows_a_secret() -> None:
    secrets = {"written": Secret("hunter2", reference="*$@a.b"), "given": Secret("hunter2")}
    assert json.loads(filesystem.dump_json(secrets)) == {"written": "***", "given": "***"}


@pytest.mark.parametrize("make", [filesystem.make_directory, lambda path: safe_files.make_directory(str(path))])
def test_all_new_directories_of_a_path_are_private(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "a/b/c")
    make(tmp_path / "a/b/c")
    assert [mode(tmp_path / name) for name in ("a", "a/b", "a/b/c")] == [0o700] * 3
