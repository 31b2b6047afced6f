"""The script writes a corpus of the requested length."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from prepare_corpus import MARK, main


def prepare(path: Path, characters: int, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["--output", str(path), "--characters", str(characters)]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_the_corpus_has_the_requested_length(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "new" / "corpus.txt"
    answer = prepare(path, 5000, capsys)
    text = path.read_text(encoding="utf-8")
    assert len(text) == answer["characters"] == answer["requested"] == 5000
    assert len(set(text)) == answer["distinct_characters"]
    assert hashlib.sha256(path.read_bytes()).hexdigest() == answer["sha256"]
    assert [file.name for file in path.parent.iterdir()] == ["corpus.txt"]


def test_an_existing_corpus_is_not_rewritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "corpus.txt"
    changed = [prepare(path, characters, capsys)["changed"] for characters in (5000, 5000, 6000)]
    assert changed == [True, False, True]


def test_requesting_too_many_characters_writes_the_whole_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = prepare(tmp_path / "corpus.txt", 10**9, capsys)
    assert 200_000 < answer["characters"] < answer["requested"]


def test_a_corpus_that_is_too_short_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--output", str(tmp_path / "corpus.txt"), "--characters", "999"]) == 2
    assert "--characters must be 1000 or more, not 999" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def own(directory: Path) -> int:
    return main([f"--output={directory}/corpus.txt", "--characters=5000", "--own_directory"])


def test_a_directory_of_its_own_is_created_and_marked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "new"
    changed = [(own(directory), json.loads(capsys.readouterr().out)["changed"]) for _ in range(2)]
    assert changed == [(0, True), (0, False)]
    assert {path.name for path in directory.iterdir()} == {MARK, "corpus.txt"}
    assert (directory.stat().st_mode & 0o777, (directory / MARK).stat().st_mode & 0o777) == (0o755, 0o644)


def test_a_directory_with_other_files_is_refused_and_not_touched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "thesis.txt").touch()
    assert own(tmp_path) == 1
    fault = f"{tmp_path} is not empty and was not made by `training prepare_corpus`: name another directory.\n"
    assert capsys.readouterr().err == fault
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    assert tmp_path.stat().st_mode & 0o777 == 0o700


def test_a_file_in_place_of_the_directory_is_an_error_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert own(tmp_path / "file") == 1
    fault = f"{tmp_path}/file/corpus.txt cannot be written: [Errno 20] Not a directory: '{tmp_path}/file'\n"
    assert capsys.readouterr().err == fault


def test_the_home_directory_may_be_written_as_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert own(Path("~/new")) == 0
    assert (tmp_path / "new" / MARK).exists()
