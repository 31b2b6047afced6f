"""A run on a hostile machine over SSH: the files that the machine sends stay in the directory of the attempt."""

from __future__ import annotations

import io
import json
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.servers import openssh
from toolbox.testing import Outcome, Workspace

pytestmark = pytest.mark.live

PROJECT = {
    "projects/small/orchestration.py": "from toolbox.orchestration import matrix\n\n\ndef test():\n    matrix.run()\n",
    "command_args/small.yaml.j2": "{}\n",
}


def run(server: openssh.Server, workspace: Workspace, script: str, **target: Any) -> Outcome:
    """Run a matrix with one cell, which is a shell script, on the machine."""
    there = {"backend": "ssh", "host": openssh.ADDRESS, "port": server.port, **target}
    cell = {"axes": {"x": [1]}, "target": "far", "workload": {"command": ["sh", "-c", script]}}
    configuration = json.dumps({"ci_presets": {}, "targets": {"far": there}, "matrix": cell})
    workspace.write({**PROJECT, "config/small.yaml": configuration})
    return workspace.run("project", "run", "small", env=server.environment())


def attempt(workspace: Workspace) -> Path:
    """Return the directory of the only attempt."""
    (found,) = workspace.artifacts.glob("small/*/*__test/*__x=1/attempt-1")
    return found


def test_a_cell_that_leaves_more_than_its_target_allows_is_an_error(
    server: openssh.Server, workspace: Workspace
) -> None:
    outcome = run(server, workspace, "head -c 1000 /dev/zero > a; head -c 9000 /dev/zero > b", collect_bytes=5000)
    assert outcome.exit_code == 3, str(outcome)
    step = json.loads((attempt(workspace).parent / "step.json").read_text())
    assert (step["verdict"], step["cause"]) == ("error", "configuration")
    assert "the attempt left more than 5000 bytes" in step["message"]
    assert [file.name for file in (attempt(workspace) / "files").iterdir()] == ["a"]
    assert list((server.directory / ".cache/topgallant/attempts").iterdir()) == []


def test_a_machine_that_sends_without_end_is_cut_off(server: openssh.Server, workspace: Workspace) -> None:
    with server.replaced("tar", "cat > /dev/null; yes"):
        outcome = run(server, workspace, "true", collect_bytes=1000, collect_files=10)
    assert outcome.exit_code == 3, str(outcome)
    assert "`collect_bytes` and `collect_files` of the target" in outcome.stdout + outcome.stderr


def test_a_forged_archive_writes_only_into_the_attempt_directory(
    server: openssh.Server, workspace: Workspace, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    archive = server.directory / "hostile.tar"
    long, path, members = "d" * 247, "files", [("files/forged", tarfile.REGTYPE, "")]
    for letter in "abcdefghijklmnop":
        members += [(f"{path}/{long}", tarfile.DIRTYPE, ""), (f"{path}/{letter}", tarfile.SYMTYPE, long)]
        path = f"{path}/{letter}"
    members += [(f"{path}/{'l' * 254}", tarfile.SYMTYPE, "../" * 16)]
    members += [("files/escape", tarfile.SYMTYPE, f"{path}/{'l' * 254}/../../..{outside}")]
    members += [("files/direct", tarfile.SYMTYPE, str(outside)), ("files/direct/owned", tarfile.REGTYPE, "")]
    members += [(name, tarfile.REGTYPE, "") for name in ("files/escape/owned", "../owned", f"{outside}/owned")]
    members += [("settings.yaml", tarfile.REGTYPE, ""), ("../step.json", tarfile.REGTYPE, "")]
    with tarfile.open(archive, "w") as content:
        for name, kind, target in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, target
            content.addfile(member, io.BytesIO())
    with server.replaced("tar", f"cat > /dev/null; cat {archive}"):
        run(server, workspace, "true")
    assert (attempt(workspace) / "files/forged").exists()
    assert list(outside.iterdir()) == []
    assert not (attempt(workspace).parent / "owned").exists()
    assert not (attempt(workspace) / "settings.yaml").exists()


HOSTILE_AGENT = r"""#!{python}
import base64, json, os, sys, time
line = b""
os.read(0, 8)
def say(**message):
    os.write(1, json.dumps(message).encode() + b"\n")
say(event="hello", home={home!r}, pid=1, python="3")
for line in os.fdopen(0, "rb"):
    try:
        request = json.loads(line)
    except ValueError:
        continue  # a line of the agent that was sent
    if not isinstance(request, dict) or "op" not in request:
        continue
    if request["op"] != "submit":
        say(id=request["id"], state="absent", files=["../../owned"], logs={{}})
        continue
    say(id=request["id"], state="running")
    data = base64.b64encode(b"forged").decode()
    for stream in ("../owned", "../../step", "settings", "stdout"):
        for name in (stream, stream + "\0"):
            say(event="log", directory=request["directory"], stream=name, offset=0, data=data)
    end = {{"ended_by": "exit", "exit_code": "0; rm -rf /"}}
    say(event="ended", directory=request["directory"], outcome=end, may_remain=False)
"""


def test_a_forged_agent_can_write_only_logs(server: openssh.Server, workspace: Workspace, tmp_path: Path) -> None:
    agent = tmp_path / "python"
    agent.write_text(HOSTILE_AGENT.format(python=sys.executable, home=str(server.directory)))
    agent.chmod(0o755)
    outcome = run(server, workspace, "true", python=str(agent))
    assert outcome.exit_code == 3, str(outcome)
    assert (attempt(workspace) / "stdout.log").read_text() == "forged"
    assert [path.name for path in workspace.artifacts.rglob("*owned*")] == []
    assert not (attempt(workspace) / "settings.log").exists()
    assert "the agent sends malformed events" in outcome.stderr


ANSWERS = (
    {"host": {}, "raw": {"../../../../owned": "forged"}},
    {"host": {}, "raw": {"lscpu.txt": {"a": 1}}},
    ["host"],
)
# Gives each answer once.
HOSTILE_PYTHON = r"""
case "$1 $2" in
"- "*)
    cat > /dev/null
    for answer in {answers}; do mkdir "$answer.given" 2> /dev/null && exec cat "$answer"; done ;;
*) exec {python} "$@" ;;
esac
"""


def test_hosts_that_name_other_files_are_refused(server: openssh.Server, workspace: Workspace, tmp_path: Path) -> None:
    hosts, files = [f"host-{number}" for number in range(len(ANSWERS))], []
    for number, answer in enumerate(ANSWERS):
        files.append(tmp_path / f"answer-{number}")
        files[-1].write_text(json.dumps(answer))
    env = server.environment()
    with server.known_hosts.with_suffix(".bin").joinpath("config").open("a") as config:
        config.write(f"Host {' '.join(hosts)}\n  HostName {openssh.ADDRESS}\n  Port {server.port}\n")
    script = HOSTILE_PYTHON.format(answers=" ".join(map(str, files)), python=sys.executable)
    with server.replaced("python3", script):
        outcome = workspace.run("host", "capture_state", f"--hosts={','.join(hosts)}", env=env)
    assert outcome.exit_code == 3, str(outcome)
    assert outcome.stdout.count("with no other files than lscpu.txt, nvidia-smi.txt") >= len(hosts)
    assert not [path for path in tmp_path.rglob("owned*") if path.is_file()]
