"""A run has an SSH key of its own, which only its user can read."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.fakes.ledger import MemoryLedger
from toolbox.features.tpu import ssh_keys
from toolbox.ground.model.errors import InfrastructureError
from toolbox.ground.model.resources import Owner, Resource
from toolbox.records.runs import ledger as ledgers

RUN = Owner("20261121-011343-x7k2", "project", "ann", "laptop")
BY_HAND = Owner("", "", "ann", "laptop")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state/topgallant/tpu-keys"


def test_a_key_is_made_once(tmp_path: Path) -> None:
    key = ssh_keys.of_owner(RUN, tmp_path)
    assert ssh_keys.of_owner(RUN, tmp_path) == key
    assert key.public.startswith("ssh-ed25519 ")
    assert key.metadata("me") == f"me:{key.public}"
    assert key.private.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in key.private.parent.iterdir()) == ["id_ed25519", "id_ed25519.pub"]


def test_runs_and_commands_have_different_keys(tmp_path: Path) -> None:
    assert ssh_keys.of_owner(RUN, tmp_path).public != ssh_keys.of_owner(BY_HAND, tmp_path).public


def test_parallel_callers_get_the_same_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        keys = list(pool.map(lambda _: ssh_keys.of_owner(RUN, tmp_path), range(4)))
    assert len(set(keys)) == 1


def test_half_a_key_of_a_killed_process_is_replaced(tmp_path: Path, state: Path) -> None:
    (state / RUN.run).mkdir(parents=True)
    (state / RUN.run / "id_ed25519").write_text("half")
    key = ssh_keys.of_owner(RUN, tmp_path)
    assert key.private.read_text() != "half"


@pytest.mark.parametrize(("mark", "is_kept"), [("deleted", False), ("absent", False), ("failed", True), ("", True)])
def test_the_key_of_a_run_is_removed_when_all_its_tpus_are_deleted(tmp_path: Path, mark: str, is_kept: bool) -> None:
    ledger, key = MemoryLedger(RUN), ssh_keys.of_owner(RUN, tmp_path)
    node, queued, cluster = (Resource(kind, "x", {}, 60, "") for kind in ("tpu_node", "tpu_queued_resource", "cluster"))
    for resource in (node, queued, cluster):
        ledger.plan(resource)
    ledger.mark_deleted(node)
    ssh_keys.remove_unused(ledger)
    assert key.private.exists()
    if mark == "failed":
        ledger.mark_failed(queued, "no answer")
    elif mark:
        getattr(ledger, f"mark_{mark}")(queued)
    ssh_keys.remove_unused(ledger)
    assert key.private.exists() is is_kept


def test_the_key_of_the_commands_outside_a_run_stays(tmp_path: Path) -> None:
    key = ssh_keys.of_owner(BY_HAND, tmp_path)
    ssh_keys.remove_unused(MemoryLedger(BY_HAND))
    assert key.private.exists()


def test_a_missing_program_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InfrastructureError, match="ssh-keygen"):
        ssh_keys.of_owner(RUN, tmp_path)


def test_the_key_of_a_killed_run_is_removed_when_another_key_is_made(tmp_path: Path, state: Path) -> None:
    folders = {name: state / name for name in ("killed", "in_use", "new", "commands")}
    for folder in folders.values():
        folder.mkdir(parents=True)
    for name in ("killed", "in_use", "commands"):
        os.utime(folders[name], (0, 0))
    directory = tmp_path / "in_use"
    directory.mkdir()
    ledgers.of_run(directory, "project").plan(Resource("tpu_node", "x", {}, 60, "delete x"))
    ssh_keys.of_owner(RUN, tmp_path)
    assert {name for name, folder in folders.items() if folder.exists()} == {"in_use", "new", "commands"}


@pytest.mark.parametrize("run", ["..", "../..", "/", ".", "a/b", "x" * 300, "a\nb"])
def test_the_name_of_a_run_does_not_lead_to_another_directory(state: Path, tmp_path: Path, run: str) -> None:
    owner = Owner(run, "project", "ann", "laptop")
    assert ssh_keys.of_owner(owner, tmp_path).private.parent.parent == state
    ssh_keys.remove_unused(MemoryLedger(owner))
    assert (state.exists(), list(state.iterdir())) == (True, [])
