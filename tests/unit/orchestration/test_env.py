"""The artifacts are in the directory of the current step, which depends on the thread."""

from pathlib import Path

import pytest

from toolbox.ground.system import filesystem
from toolbox.orchestration import env
from toolbox.records.runs.steps import Step


@pytest.mark.usefixtures("top")
def test_next_artifact_dir_is_current_inside_its_block(tmp_path: Path) -> None:
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


def test_unknown_names_of_env_raise_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="ARTIFACTS"):
        _ = env.ARTIFACTS
