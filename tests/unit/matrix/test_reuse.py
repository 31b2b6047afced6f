"""A cell has a key for the reuse of results only if everything that determines the result is known."""

import dataclasses
from importlib import metadata
from pathlib import Path

import pytest
from pydantic import BaseModel

from toolbox.ground.model.errors import DamagedFile
from toolbox.ground.model.workloads import Workload
from toolbox.matrix import reuse
from toolbox.matrix.reuse import Reuse
from toolbox.matrix.targets import PlannedTarget
from toolbox.targets.backends import local, ssh

WORKLOAD = Workload(("true",))


class Machine(local.Target):
    """A machine that is identified by a field."""

    serial: str = "one"

    def identity(self, name: str, workload: Workload) -> str | None:
        del name, workload
        return self.serial


def target(description: BaseModel) -> PlannedTarget:
    return PlannedTarget("here", "local", description)  # type: ignore[arg-type]  # a model that is a target


def key(description: BaseModel, digest: str = "d", workload: Workload = WORKLOAD) -> str | None:
    return reuse.keys(digest, workload, [target(description)]).keys.get("here")


def test_equal_cells_on_equal_targets_have_equal_keys() -> None:
    first = key(Machine())
    assert first is not None
    assert key(Machine()) == first


def test_different_cells_and_different_machines_have_different_keys() -> None:
    assert len({key(Machine()), key(Machine(), "other"), key(Machine(serial="two"))}) == 3


def test_another_version_has_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = key(Machine())
    monkeypatch.setattr(metadata, "version", lambda _: "99")
    assert key(Machine()) != before


def test_a_target_that_does_not_identify_itself_has_no_key() -> None:
    assert key(ssh.Target(host="tpu-7")) is None


def test_a_cell_in_a_directory_of_the_target_has_no_key() -> None:
    assert key(Machine(), workload=dataclasses.replace(WORKLOAD, cwd="/srv")) is None


def test_a_resumed_run_reads_the_reused_results_from_its_plan(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(
        '{"cells": [{"id": "a", "reuse": {"keys": {"here": "k"}, "run": "r", "directory": "/d"}}, {"id": "b"}]}'
    )
    assert reuse.frozen(tmp_path) == {"a": Reuse({"here": "k"}, "r", "/d")}


@pytest.mark.parametrize("content", ["{", "{}", '{"cells": [{"id": "a", "reuse": 1}]}', '{"cells": 1}'])
def test_a_damaged_plan_is_reported_with_its_name(tmp_path: Path, content: str) -> None:
    (tmp_path / "plan.json").write_text(content)
    with pytest.raises(DamagedFile):
        reuse.frozen(tmp_path)
