"""The script writes a corpus of the requested length."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from prepare_corpus import main


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
