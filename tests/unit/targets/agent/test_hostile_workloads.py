"""If a workload plants files in its attempt's directory, the agent writes nothing elsewhere and is not blocked."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.conftest import Script
from tests.unit.targets.agent.test_server import Agent, agent
from tests.unit.targets.agent.test_supervisor import outcome, run
from toolbox.ground.kit import safe_files
from toolbox.ground.system import processes
from toolbox.targets.agent import attempt_directory

__all__ = ["agent"]

NAMES = (".exit_code", ".outcome.json", "exit_code", "outcome.json", "started", "stdout.log", "samples.csv", "lock")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "plant",
    [
        "ln -s {victim} ../{name}",
        "ln -s {new} ../{name}",
        "ln {victim} ../{name}",
        "mkfifo ../{name}",
        "mkdir -p ../{name}/folder",
    ],
)
def test_an_outcome_is_written_whatever_the_workload_has_put_in_its_place(
    script: Script, tmp_path: Path, name: str, plant: str
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    planted = plant.format(victim=victim, new=tmp_path / "new", name=name)
    command = ["sh", "-c", f"rm -rf ../{name}; {planted}; echo said; sleep 0.2; exit 7"]
    assert run(script, command=command, sample_seconds=0.1) == [""]
    assert outcome(tmp_path)["exit_code"] == 7
    assert (tmp_path / "attempt/exit_code").read_text() == "7\n"
    assert not (tmp_path / "attempt/exit_code").is_symlink()
    assert victim.read_text() == "untouched"
    assert not (tmp_path / "new").exists()


def test_an_outcome_is_written_if_the_workload_has_moved_its_directory(script: Script, tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    place = tmp_path / "attempt"
    command = f"mv {place} {tmp_path}/moved; ln -s {tmp_path}/victim {place}; exit 7"
    run(script, command=["sh", "-c", command], sample_seconds=0.1)
    assert outcome(tmp_path)["exit_code"] == 7
    assert not place.is_symlink()
    assert list((tmp_path / "victim").iterdir()) == []


@pytest.mark.parametrize("plant", ["mkfifo {log}", "ln -s {victim} {log}", "mkdir {log}"])
def test_a_log_that_is_not_a_regular_file_is_not_sent_and_blocks_nothing(
    agent: Agent, tmp_path: Path, plant: str
) -> None:
    (tmp_path / "victim").write_text("private")
    planted = plant.format(log="../stderr.log", victim=tmp_path / "victim")
    agent.submit("sh", "-c", f"rm ../stderr.log; {planted}; echo said", offsets={"stdout": 0, "stderr": 0})
    events = [agent.end()]
    while events[-1]["event"] != "ended":
        events.append(agent.end())
    assert {event["stream"] for event in events[:-1]} == {"stdout"}
    assert agent.ask("list", patterns=["**"], most=100)["logs"] == {"stdout": 5}


@pytest.mark.parametrize("name", ["lock", "outcome.json", "exit_code", "started"])
def test_a_pipe_in_the_place_of_a_record_blocks_nothing(tmp_path: Path, name: str) -> None:
    for other in ("lock", "outcome.json", "exit_code", "started"):
        (tmp_path / other).write_text("{}")
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    assert attempt_directory.state(str(tmp_path))["state"] == "lost"
    assert attempt_directory.pid_of(str(tmp_path)) == 0


def test_an_outcome_is_not_read_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text(json.dumps({"exit_code": 0}))
    for name in ("lock", "exit_code", "started"):
        (tmp_path / name).touch()
    (tmp_path / "outcome.json").symlink_to(tmp_path / "secret.json")
    assert attempt_directory.state(str(tmp_path)) == {"state": "lost"}
    assert attempt_directory.listing(str(tmp_path), ["**"]) == ["exit_code"]


def test_an_outcome_of_megabytes_is_not_read(tmp_path: Path) -> None:
    for name in ("lock", "exit_code", "started"):
        (tmp_path / name).touch()
    (tmp_path / "outcome.json").write_text(json.dumps({"message": "m" * (1 << 20)}))
    assert attempt_directory.state(str(tmp_path)) == {"state": "lost"}


def test_cancelling_does_not_signal_a_process_that_the_workload_forges(agent: Agent) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as innocent:
        forged = json.dumps({"pid": innocent.pid})
        agent.submit("sh", "-c", f"echo '{forged}' > ../started; touch forged; exec sleep 600")
        while not (agent.directory / "files/forged").exists():
            assert processes.marked(agent.directory)
        agent.ask("cancel")
        assert agent.end()["outcome"] is not None or not processes.marked(agent.directory)
        assert innocent.poll() is None
        innocent.communicate(b"\n")


def test_releasing_removes_a_link_and_not_its_target(agent: Agent, tmp_path: Path) -> None:
    agent.submit("true")
    agent.end()
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o755)
    (victim / "file").touch()
    shutil.rmtree(agent.directory)
    agent.directory.symlink_to(victim)
    assert agent.ask("release") == {}
    assert not agent.directory.is_symlink()
    assert [path.name for path in victim.iterdir()] == ["file"]


def test_a_device_is_not_a_regular_file(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/dev/null")
    for path in ("/dev/null", str(tmp_path / "link"), str(tmp_path), str(tmp_path / "none")):
        assert not safe_files.is_regular(path)
        with pytest.raises(OSError, match=r"not a regular file|symbolic links|No such file"):
            safe_files.read(path, 1)
