"""Where the artifacts go: the directory of the step, which belongs to the thread."""

import threading
from pathlib import Path

import pytest

from toolbox.orchestration import env
from toolbox.runs.steps import Step
from toolbox.system import filesystem


@pytest.mark.usefixtures("top")
def test_the_next_directory_is_the_current_one_inside_of_its_block(tmp_path: Path) -> None:
    assert tmp_path == env.ARTIFACT_DIR
    with env.NextArtifactDir("deploy") as outer, env.NextArtifactDir("check") as inner:
        assert outer == tmp_path / "000__deploy"
        assert inner == env.ARTIFACT_DIR == outer / "000__check"
    assert tmp_path == env.ARTIFACT_DIR


def test_the_block_is_a_step_and_fails_with_it(top: Step, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no"), env.NextArtifactDir("deploy"):
        raise ValueError("no")
    assert "ValueError: no" in (tmp_path / "000__deploy/FAILURE").read_text()
    assert filesystem.read_json(tmp_path / "000__deploy/step.json")["verdict"] == "error"
    assert (outcome := top.outcome()) is not None
    assert not outcome.verdict.is_pass


def test_the_directory_belongs_to_the_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARTIFACT_DIR", str(tmp_path))
    together = threading.Barrier(8, timeout=30)
    seen: dict[str, Path] = {}

    def work(name: str) -> None:
        with env.NextArtifactDir(name):
            together.wait()
            seen[name] = env.ARTIFACT_DIR
            together.wait()

    threads = [threading.Thread(target=work, args=(f"t{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {name: path.name[5:] for name, path in seen.items()} == {name: name for name in seen}
    assert sorted(path.name[:3] for path in seen.values()) == [f"{number:03d}" for number in range(8)]


@pytest.mark.parametrize("name", ["../up", "/etc", "a\0b", "x" * 999, "\x1b]0;title\x07"])
@pytest.mark.usefixtures("top")
def test_a_hostile_name_stays_inside(tmp_path: Path, name: str) -> None:
    with env.NextArtifactDir(name) as directory:
        assert directory.resolve().parent == tmp_path.resolve()


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="ARTIFACTS"):
        _ = env.ARTIFACTS
