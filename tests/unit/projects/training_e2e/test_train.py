"""The training workload reads settings, prints lines, writes metrics and returns an exit status."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Settings = dict[str, Any]
Train = Callable[..., int]


def metrics(directory: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((directory / "output" / "train_metrics.json").read_text())
    return content


def test_a_training_prints_each_step_and_the_last_line(
    train: Train, small: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train() == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == small["steps"] + 1
    assert lines[-1] == "Finished training run"
    words = lines[3].split()
    assert words[:3] == ["step", "3", "loss"]
    assert (words[4], words[6]) == ("step_time", "s")
    assert float(words[3]) > 0 < float(words[5])


def test_the_loss_falls(train: Train, tmp_path: Path) -> None:
    assert train(steps=60) == 0
    found = metrics(tmp_path)
    assert found["last_loss"] < 0.7 * found["first_loss"]
    assert found["loss_drop"] == pytest.approx(found["first_loss"] - found["last_loss"])


def test_the_metrics_describe_the_run(train: Train, small: Settings, tmp_path: Path) -> None:
    train()
    found = metrics(tmp_path)
    assert found["settings"] == small
    assert found["warmup_steps"] == small["warmup_steps"]
    assert len(found["losses"]) == len(found["step_times_seconds"]) == small["steps"]
    after_warmup = sorted(found["step_times_seconds"][2:])
    assert found["step_time_seconds"] == pytest.approx((after_warmup[4] + after_warmup[5]) / 2)
    assert found["tokens_per_second"] == pytest.approx(8 * 16 / found["step_time_seconds"])
    assert found["first_loss"] == pytest.approx(sum(found["losses"][:5]) / 5)
    assert found["last_loss"] == pytest.approx(sum(found["losses"][-5:]) / 5)
    assert found["parameters"] > 1000
    assert set(found["versions"]) == {"numpy", "python"}


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_seed_gives_the_same_losses_again(train: Train, tmp_path: Path, precision: str) -> None:
    losses = []
    for seed in (1, 1, 2):
        train(seed=seed, precision=precision)
        losses.append(metrics(tmp_path)["losses"])
    assert losses[0] == losses[1] != losses[2]


def test_a_training_of_a_single_step_succeeds(train: Train, tmp_path: Path) -> None:
    assert train(steps=1, warmup_steps=0) == 0
    assert metrics(tmp_path)["loss_drop"] == 0


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"width": 15}, "width 15 cannot be divided by heads 2"),
        ({"steps": 2}, "steps 2 must be more than warmup_steps 2"),
        ({"precision": "float16"}, "precision must be one of float32, float64, not 'float16'"),
        ({"layers": "2"}, "layers must be an integer of at least 1, not '2'"),
        ({"batch": True}, "batch must be an integer of at least 1, not True"),
        ({"seed": -1}, "seed must be an integer of at least 0, not -1"),
        ({"learning_rate": float("nan")}, "learning_rate must be a number above 0, not nan"),
        ({"colour": "red"}, "unknown setting 'colour' (the settings are layers"),
        ({"heads": None}, "heads is missing"),
        ({"context": 10_000}, "has 840 characters: context 10000 needs more"),
        ({"layers": 0, "heads": 0}, "layers must be an integer of at least 1, not 0; heads must be"),
    ],
)
def test_invalid_settings_are_refused_on_one_line(
    train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], fault: str
) -> None:
    assert train(**changes) == 2
    error = capsys.readouterr().err
    assert fault in error
    assert error.count("\n") == 1
    assert not (tmp_path / "output" / "train_metrics.json").exists()


@pytest.mark.parametrize("content", ["{", "[]", "\xff"])
def test_settings_must_be_a_json_object(tmp_path: Path, content: str) -> None:
    from train_settings import SettingsError, read_settings

    path = tmp_path / "settings.json"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(SettingsError, match=r"settings\.json"):
        read_settings(path)


def test_a_training_that_diverges_fails_without_a_result(
    train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train() == 0
    assert train(learning_rate=1e30) == 1
    captured = capsys.readouterr()
    assert "the training diverged at step" in captured.err
    assert not captured.out.endswith("Finished training run\n")
    assert list((tmp_path / "output").iterdir()) == []


def test_the_corpus_path_may_begin_with_a_tilde(train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from train import main

    train()  # writes the settings and the corpus
    monkeypatch.setenv("HOME", str(tmp_path))
    files = {"settings": tmp_path / "settings.json", "corpus": "~/corpus.txt", "output": tmp_path / "again"}
    assert main([f"--{name}={file}" for name, file in files.items()]) == 0


def test_the_script_runs_from_any_directory(train: Train, workload: Path, tmp_path: Path) -> None:
    train()  # writes the settings and the corpus
    copy = shutil.copytree(workload, tmp_path / "copy", ignore=shutil.ignore_patterns("__pycache__"))
    program = [sys.executable, str(copy / "train.py"), "--settings=settings.json", "--corpus=corpus.txt"]
    ended = subprocess.run([*program, "--output=again"], cwd=tmp_path, check=True, capture_output=True)
    assert ended.stdout.endswith(b"\nFinished training run\n")
    assert (tmp_path / "again" / "train_metrics.json").is_file()
    assert not (copy / "__pycache__").exists()
