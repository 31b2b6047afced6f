"""Ansible runs the real roles of toolbox commands in the repository of a team.

Each role takes about a second; therefore one test checks several properties of a role.
"""

import contextlib
import json
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from toolbox.ansible import roles
from toolbox.ansible.roles import RoleCall
from toolbox.ground.interface import signature
from toolbox.ground.interface.registry import Command
from toolbox.ground.model.addresses import Address
from toolbox.ground.model.errors import Cancelled, StepError, UsageError
from toolbox.ground.model.events import Event, StepFinished, TaskFinished, TaskStarted
from toolbox.ground.model.secrets import Secret
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.ground.system import cancellation, filesystem, processes, scratch
from toolbox.ground.system.redaction import Redactor
from toolbox.orchestration import run
from toolbox.records.runs import steps
from toolbox.records.runs.recorder import Recorder
from toolbox.records.runs.steps import Step

HOSTILE = "\"; touch pwned; $(touch pwned2) `touch pwned3` ' \n{{ 7*7 }} {% raw %} {# x #} \\ é☃: - & * !unsafe"
KEEP = """
- name: Keep what arrived
  ansible.builtin.copy:
    content: "{{ {'values': probe_keep_values, 'text': probe_keep_text, 'count': probe_keep_count} | to_json }}"
    dest: "{{ artifact_extra_logs_dir }}/artifacts/values.json"
    mode: "0600"
- name: Print the text
  ansible.builtin.command:
    argv: [printf, "%s", "{{ probe_keep_text }}"]
  changed_when: false
- name: Render the text
  ansible.builtin.template:
    src: text.j2
    dest: "{{ artifact_extra_logs_dir }}/src/text"
    mode: "0600"
- name: Show it with a shell
  ansible.builtin.shell: "printf %s {{ probe_keep_text | quote }}"
  changed_when: false
"""
COMMANDS = '''
"""Look at what arrives."""
from pathlib import Path
from typing import Any
from toolbox.api import role

class Probe:
    """Look at what arrives."""

    @role
    def keep(self, text: str, count: int = 3, values: dict[str, Any] | None = None):
        """Keep what arrives."""
'''


@pytest.fixture
def shown() -> list[Event]:
    return []


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory that replaces the memory file system for secrets."""
    found = tmp_path / "memory"
    found.mkdir()
    monkeypatch.setattr(scratch, "_IN_MEMORY", found)
    return found


@pytest.fixture
def root(tmp_path: Path, memory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the repository of a team, which is the working directory."""
    assert memory.is_dir()
    found = tmp_path / "repository"
    (found / "projects").mkdir(parents=True)
    filesystem.write_text(found / "commands/probe.py", COMMANDS)
    monkeypatch.chdir(found)
    yield found
    sys.modules.pop("_commands_probe", None)


@pytest.fixture
def top(tmp_path: Path, root: Path, shown: list[Event]) -> Iterator[Step]:
    """Yield the top step of a run, which is the current step."""
    assert root.is_dir()
    run_directory = filesystem.make_directory(tmp_path / "run")
    step = Step(run_directory, Recorder(run_directory, Redactor(), [shown.append]), "top")
    with steps.entered(step):
        yield step


def command(group: str, name: str) -> Command:
    """Return a command whose role is `GROUP_NAME`, and whose method has no body."""
    described = signature.of(lambda: None, name=f"{group} {name}")
    return Command(group, name, lambda **_: None, described, f"{group}_{name}")


Role = Callable[..., Path]


@pytest.fixture
def role(root: Path, top: Step) -> Role:
    """Return a function that writes and runs a role `probe_NAME`, and returns the directory of its step."""

    def call(name: str, tasks: str, *, hosts: tuple[Address, ...] = (), **values: Any) -> Path:
        filesystem.write_text(root / f"roles/probe_{name}/tasks/main.yml", tasks)
        try:
            roles.run(command("probe", name), {**values, "hosts": hosts})
        finally:
            made = sorted(top.directory.glob(f"*__probe__{name}"))
        return made[-1]

    return call


def test_a_role_gets_unchanged_values_with_their_types_and_its_step_has_files(
    root: Path, top: Step, shown: list[Event], memory: Path
) -> None:
    filesystem.write_text(root / "roles/probe_keep/tasks/main.yml", KEEP)
    filesystem.write_text(root / "roles/probe_keep/templates/text.j2", "{{ probe_keep_text }}")
    values = {"n": None, "yes": True, "f": 0.5, "i": 7, "1.10": "1.10", "l": ["1", 1, HOSTILE], "m": {HOSTILE: HOSTILE}}
    result = run.run_toolbox("probe", "keep", text=HOSTILE, count="12", values=values, artifact_dir_suffix="__hostile")

    directory = top.directory / "000__probe__keep__hostile"
    assert (result.directory, result.passed) == (directory, True)
    arrived = json.loads((directory / "artifacts/values.json").read_text())
    assert arrived == {"text": HOSTILE, "count": 12, "values": values}
    assert (directory / "src/text").read_text() == HOSTILE
    printed = {event.name: event.output for event in shown if isinstance(event, TaskFinished)}
    assert printed["Print the text"] == printed["Show it with a shell"] == HOSTILE
    assert not list(root.parent.rglob("pwned*"))

    names = {
        "step.json",
        "_python.cmd",
        "_python.args.yaml",
        "_ansible.play.yaml",
        "_ansible.log",
        "_ansible.events.jsonl",
    }
    assert {path.name for path in directory.iterdir()} == {*names, "src", "artifacts"}
    assert yaml.safe_load((directory / "_python.args.yaml").read_text()) == {
        "probe keep": {"text": HOSTILE, "count": 12, "values": values}
    }
    assert all(json.loads(line) for line in (directory / "_ansible.events.jsonl").read_text().splitlines())
    assert "TASK [probe_keep : Print the text]" in (directory / "_ansible.log").read_text()
    assert not [path for path in directory.rglob("*") if stat.S_IMODE(path.stat().st_mode) & 0o077]
    assert filesystem.read_json(directory / "step.json")["verdict"] == "passed"
    assert list(memory.iterdir()) == []


def test_a_failing_task_gives_its_name_and_its_message(role: Role, top: Step) -> None:
    tasks = """
- name: Look for the device
  ansible.builtin.command: bash -c 'echo "no such device" >&2; exit 4'
- name: Never reached
  ansible.builtin.debug:
"""
    with pytest.raises(StepError) as caught:
        role("fail", tasks)
    message = "task `Look for the device` failed on localhost: `bash -c 'echo \"no such device\" >&2; exit 4'` "
    assert str(caught.value) == message + "ended with status 4\nno such device"
    assert caught.value.directory == top.directory / "000__probe__fail"
    assert (caught.value.verdict, caught.value.cause) == (Verdict.ERROR, Cause.INFRASTRUCTURE)
    assert "no such device" in (top.directory / "000__probe__fail/FAILURE").read_text()


def test_a_role_passes_with_a_rescue_an_ignored_error_and_a_loop(role: Role, shown: list[Event]) -> None:
    tasks = """
- name: Try
  block:
    - name: Fail first
      ansible.builtin.fail: {msg: rescued}
  rescue:
    - name: Recover
      ansible.builtin.debug: {msg: recovered}
- name: Fail in vain
  ansible.builtin.fail: {msg: in vain}
  ignore_errors: true
- name: Loop
  ansible.builtin.command: "echo {{ item }}"
  loop: [1, 2]
  changed_when: false
- name: Skip
  ansible.builtin.debug:
  when: false
"""
    directory = role("odd", tasks)
    status = {event.name: event.status for event in shown if isinstance(event, TaskFinished)}
    assert status == {
        "Fail first": "failed", "Recover": "ok", "Fail in vain": "ignored",
        "Loop": "ok", "Skip": "skipped",
    }  # fmt: skip
    assert filesystem.read_json(directory / "step.json")["verdict"] == "passed"
    assert not (directory / "FAILURE").exists()


def test_a_failure_has_the_verdict_that_the_enclosing_step_defines(role: Role, top: Step) -> None:
    top.failure = (Verdict.FAILED, Cause.PRODUCT)
    with pytest.raises(StepError) as caught:
        role("fail", "- name: Fail\n  ansible.builtin.fail: {msg: 'no'}\n")
    assert (caught.value.verdict, caught.value.cause) == (Verdict.FAILED, Cause.PRODUCT)


def test_a_host_that_cannot_be_reached_is_an_error_of_the_infrastructure(role: Role, top: Step) -> None:
    top.failure = (Verdict.FAILED, Cause.PRODUCT)
    with pytest.raises(StepError, match=r"`Log in` unreachable on 127\.0\.0\.1") as caught:
        role("look", "- name: Look\n  ansible.builtin.ping:\n", hosts=(Address("127.0.0.1", "nobody", 1),))
    assert (caught.value.verdict, caught.value.cause) == (Verdict.ERROR, Cause.INFRASTRUCTURE)


def test_a_role_that_is_not_yaml_fails_with_the_message_of_ansible(role: Role) -> None:
    with pytest.raises(StepError, match="probe broken: ") as caught:
        role("broken", "- name: [unclosed\n")
    assert len(str(caught.value)) > len("probe broken: ")


@pytest.mark.parametrize(
    ("group", "name", "hosts", "message"),
    [
        ("training", "prepare_corpu", [], "there is no role roles/training_prepare_corpu/.*did you mean"),
        ("host", "capture_state", [Address("a"), Address("a", "me")], "is named twice"),
    ],
)
def test_a_missing_role_or_a_repeated_host_is_refused_before_anything_starts(
    top: Step, shown: list[Event], group: str, name: str, hosts: list[Address], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        roles.run(command(group, name), {"hosts": hosts})
    assert shown == []
    assert list(top.directory.iterdir()) == []


def test_arguments_are_checked_before_anything_starts(top: Step, root: Path) -> None:
    filesystem.write_text(root / "roles/probe_keep/tasks/main.yml", KEEP)
    with pytest.raises(UsageError, match="probe keep:") as caught:
        run.run_toolbox("probe", "keep", count="many", txt="x")
    assert all(name in str(caught.value) for name in ("--count", "--text", "--txt"))
    assert list(top.directory.iterdir()) == []


ECHO = """
- name: Print the secrets
  ansible.builtin.command:
    argv: [bash, -c, 'printf "%s\\n" "$@"; printf "%s\\n" "$@" >&2; exit {{ probe_echo_status }}', bash,
           "{{ probe_echo_token }}", "{{ probe_echo_more.key }}", "{{ probe_echo_pin }}"]
  changed_when: false
- name: Write a secret
  ansible.builtin.copy:
    content: "{{ probe_echo_token }}"
    dest: "{{ artifact_extra_logs_dir }}/artifacts/token"
    mode: "0600"
- name: Hold what is no secret against what was given
  ansible.builtin.assert:
    that: probe_echo_home == "/home/hun" ~ "ter2/" and probe_echo_pin == "1357" ~ "2468"
"""
SECRETS = {"token": 'it\'s a "hunter2"\nsecond-line-of-it', "key": "k3y-{{ 7*7 }}-☃", "pin": "13572468"}


@pytest.mark.parametrize("status", [0, 3])
def test_a_secret_is_in_no_file_and_no_event_whether_the_role_passes_or_fails(
    role: Role, top: Step, shown: list[Event], memory: Path, status: int
) -> None:
    top.recorder.redactor.add(["hunter2"])
    values = {
        "token": Secret(SECRETS["token"], reference="*$@secrets.token"),
        "more": {"key": Secret(SECRETS["key"])},
        "pin": Secret(SECRETS["pin"]),
        "home": "/home/hunter2/",
        "status": status,
    }
    with pytest.raises(StepError, match="ended with status 3") if status else contextlib.nullcontext():
        role("echo", ECHO, **values)
    texts = [repr(event) for event in shown]
    held = [path for path in top.directory.rglob("*") if path.is_file()]
    contents = [path.read_bytes() for path in held]
    for secret in ("hunter2", "second-line-of-it", SECRETS["key"], SECRETS["pin"]):
        assert not [path for path, content in zip(held, contents, strict=True) if secret.encode() in content], secret
        assert not [text for text in texts if secret in text], secret
    ends = [event.verdict for event in shown if isinstance(event, StepFinished)]
    assert ends == [Verdict.ERROR if status else Verdict.PASSED]
    assert list(memory.iterdir()) == []


def test_a_cancelled_role_is_ended_with_all_its_processes(
    role: Role, top: Step, shown: list[Event], memory: Path
) -> None:
    begun = threading.Event()
    top.recorder.listeners = [shown.append, lambda event: begun.set() if isinstance(event, TaskStarted) else None]
    with cancellation.opened() as scope:

        def cancel() -> None:
            assert begun.wait(30), "the beginning of a task was expected while it runs"
            scope.cancel("enough")

        canceller = threading.Thread(target=cancel)
        canceller.start()
        with pytest.raises(Cancelled, match="enough"):
            role("sleep", "- name: Sleep\n  ansible.builtin.command: setsid sleep 60\n")
        canceller.join()
    assert processes.marked(top.directory) == []
    assert list(memory.iterdir()) == []
    assert filesystem.read_json(top.directory / "000__probe__sleep/step.json")["verdict"] == "cancelled"


def test_without_check_a_failure_is_returned_and_does_not_count(root: Path, top: Step) -> None:
    filesystem.write_text(
        root / "roles/probe_keep/tasks/main.yml", "- name: Fail\n  ansible.builtin.fail: {msg: 'no'}\n"
    )
    result = run.run_toolbox("probe", "keep", text="x", check=False)
    assert not result.passed
    assert result.directory == top.directory / "000__probe__keep"
    assert "task `Fail` failed" in str(result.error)
    assert top.outcome() is None


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (str, HOSTILE),
        (str, "1.10"),
        (str, ""),
        (int | None, None),
        (bool, True),
        (float, 1e-5),
        (Path, Path("/a b")),
        (list[str], ["a,b", "1.10", "two\nlines", "it's", "", "null", "x" * 20_000 + " y"]),
        (list[Path], [Path("/a"), Path("/b c")]),
        (list[int], []),
        (dict[str, Any], {"a": {"b": [1, "1", None, True, 0.5, "x: y"]}}),
    ],
    ids=range(11),
)
def test_the_command_line_of_a_step_gives_the_same_value_again(annotation: Any, value: Any) -> None:
    parameter = signature.Parameter("x", annotation, None, "")
    text = roles._argument(value)
    assert "\n" not in text or isinstance(value, str)
    assert signature.convert(parameter, text, text=True) == value


def test_the_command_line_of_a_step_holds_no_secret() -> None:
    call = RoleCall(
        command("a", "b"),
        {"token": Secret("hunter2"), "more": {"k": [Secret("hunter2")]}},
        [Address("host", "me", 22), Address("x")],
    )
    assert (
        call.command_line == "./run_toolbox.py a b '--token=***' '--more={k: ['\"'\"'***'\"'\"']}' --hosts=me@host:22,x"
    )


def test_the_fingerprint_of_a_call_uses_the_reference_of_a_secret() -> None:
    def fingerprint(**values: object) -> str:
        return RoleCall(command("a", "b"), values).fingerprint

    token = Secret("hunter2", reference="*$@token")
    assert fingerprint(token=token) == fingerprint(token=Secret("other", reference="*$@token"))
    assert fingerprint(mode="test") != fingerprint(mode="***")


PATHS = """
from pathlib import Path
from toolbox.api import role

class Probe:
    'Look at what arrives.'

    @role
    def path(self, file: Path, other: Path | None = None):
        'Keep a path.'
"""
SHOW_PATH = """
- name: Keep the paths
  ansible.builtin.copy:
    content: "{{ [probe_path_file, probe_path_other] | to_json }}"
    dest: "{{ artifact_extra_logs_dir }}/artifacts/paths.json"
    mode: "0600"
"""


@pytest.mark.usefixtures("top")
def test_a_relative_path_is_made_absolute_for_a_role(root: Path) -> None:
    filesystem.write_text(root / "commands/probe.py", PATHS)
    filesystem.write_text(root / "roles/probe_path/tasks/main.yml", SHOW_PATH)
    result = run.run_toolbox("probe", "path", file="some/where", other="~/there")
    assert result.directory is not None
    kept = json.loads((result.directory / "artifacts/paths.json").read_text())
    assert kept == [str(root / "some/where"), str(Path("~/there").expanduser())]
    assert f"--file={root}/some/where" in (result.directory / "_python.cmd").read_text()


def test_a_relative_path_on_another_host_is_refused(root: Path, top: Step, shown: list[Event]) -> None:
    filesystem.write_text(root / "commands/probe.py", PATHS)
    filesystem.write_text(root / "roles/probe_path/tasks/main.yml", SHOW_PATH)
    with pytest.raises(UsageError, match=r"probe path: --file=some/where: a path on another host has to be absolute"):
        run.run_toolbox("probe", "path", file="some/where", hosts=["node-1"])
    assert shown == []
    assert list(top.directory.iterdir()) == []


BODIES = """
from typing import Any
from toolbox.ground.model.secrets import Secret
from toolbox.api import role

class Probe:
    'Look at what arrives.'

    @role("disk_measure")
    def disk(self, path: str, token: Secret, unit: str = "g") -> dict[str, Any]:
        'Measure a disk.'
        if unit not in {"g", "m"}:
            raise ValueError(f"--unit={unit}: g or m was expected")
        return {"label": f"{{{{ 7 * 7 }}}} {path}", "path": path.rstrip("/"), "key": Secret("k3y-" + token.reveal())}
"""
SHOW_BODY = """
- name: Keep what arrived
  ansible.builtin.copy:
    content: "{{ [disk_measure_path, disk_measure_unit, disk_measure_label, disk_measure_key | length] | to_json }}"
    dest: "{{ artifact_extra_logs_dir }}/artifacts/values.json"
    mode: "0600"
- name: Print a secret
  ansible.builtin.command:
    argv: [printf, "%s", "{{ disk_measure_key }}"]
  changed_when: false
"""


def test_a_body_runs_before_a_role_of_another_name_and_adds_to_its_variables(root: Path, top: Step) -> None:
    filesystem.write_text(root / "commands/probe.py", BODIES)
    filesystem.write_text(root / "roles/disk_measure/tasks/main.yml", SHOW_BODY)
    result = run.run_toolbox("probe", "disk", path="/data/", token="hunter2", unit="m")
    assert result.directory == top.directory / "000__probe__disk"
    kept = json.loads((result.directory / "artifacts/values.json").read_text())
    assert kept == ["/data", "m", "{{ 7 * 7 }} /data/", len("k3y-hunter2")]
    assert "--path=/data/" in (result.directory / "_python.cmd").read_text()
    assert not [path for path in top.directory.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]


def test_an_error_in_a_body_starts_nothing(root: Path, top: Step, shown: list[Event]) -> None:
    filesystem.write_text(root / "commands/probe.py", BODIES)
    filesystem.write_text(root / "roles/disk_measure/tasks/main.yml", SHOW_BODY)
    with pytest.raises(UsageError, match="probe disk: --unit=x: g or m was expected"):
        run.run_toolbox("probe", "disk", path="/data/", token="hunter2", unit="x")
    assert shown == []
    assert list(top.directory.iterdir()) == []
