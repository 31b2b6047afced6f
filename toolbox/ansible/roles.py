"""Toolbox commands that run an Ansible role, by ansible-runner.

`@role` marks a method as such a command. The command `Host.capture_state` runs the role `host_capture_state`, and the
parameter `packages` becomes the variable `host_capture_state_packages`. `@role("name")` names another role. The method
is called before the role runs, and may refuse the arguments or return further variables (`role_variables.py`). The
command line and `run.run_toolbox` run the method and the role; a direct call runs only the method. The role runs on
this machine, or on the SSH hosts of `--hosts` with the user's SSH configuration.

The directory of the step contains `_python.cmd`, `_python.args.yaml`, `_ansible.play.yaml`, `_ansible.log`,
`_ansible.events.jsonl`, `src/` (the files that the role created), `artifacts/` (the state that the role recorded; for
SSH hosts in `artifacts/HOST/`), and `FAILURE` if the role failed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import shlex
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolbox.ansible import inventory, playbook, unsafe_yaml
from toolbox.ansible.playbook import Play
from toolbox.ansible.role_events import LOGIN, RoleEvents
from toolbox.ansible.role_variables import plain, run_body, with_absolute_paths
from toolbox.ansible.unsafe_yaml import untrusted
from toolbox.ground.interface.registry import HOSTS, LOGIN_TIMEOUT, Command
from toolbox.ground.model import yaml_text
from toolbox.ground.model.addresses import Address
from toolbox.ground.model.errors import MissingProgram, StepError, UsageError
from toolbox.ground.model.events import Note, StepKind
from toolbox.ground.model.evidence import FAILING
from toolbox.ground.model.nearest import did_you_mean
from toolbox.ground.model.secrets import MASK, Secret, secrets_in
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.ground.system import cancellation, environ, extras, filesystem, places, processes, scratch
from toolbox.records.runs import steps
from toolbox.records.runs.layout import StepDirectory
from toolbox.records.runs.steps import Step

_LONG_LOGIN_SECONDS: Final = 5.0  # after this time, a line says what the command waits for
_TIMED_OUT: Final = ("Timed out after", "expected time frame")  # what Ansible says about the time limit of a task


@dataclass(frozen=True, slots=True)
class RoleCall:
    """A request to run the role of a toolbox command.

    Args:
        command: the command, whose method is called before the role runs.
        values: the converted arguments, by parameter.
        hosts: the SSH hosts; empty for this machine.
        login_timeout: how many seconds a host may take to log in.
    """

    command: Command
    values: Mapping[str, Any]
    hosts: Sequence[Address] = ()
    login_timeout: int = LOGIN_TIMEOUT.default

    @property
    def role(self) -> str:
        """The name of the role."""
        assert self.command.role is not None, "`RoleCall` needs a command that has a role"
        return self.command.role

    @property
    def label(self) -> str:
        """The group and the name of the command, for messages."""
        return f"{self.command.group} {self.command.name}"

    @property
    def command_line(self) -> str:
        """The command line that reproduces the step. It contains references instead of secrets."""
        words = [environ.program(), self.command.group, self.command.name]
        words += [f"--{name}={_argument(value)}" for name, value in self.values.items()]
        if self.login_timeout != LOGIN_TIMEOUT.default:
            words.append(f"--{LOGIN_TIMEOUT.name}={self.login_timeout}")
        if self.hosts:
            words.append(f"--hosts={','.join(map(str, self.hosts))}")
        return shlex.join(words)

    @property
    def fingerprint(self) -> str:
        """A hash of the command line, which contains references instead of secrets.

        The command line is not redacted before it is hashed, because a resumed run may know fewer secrets.
        """
        return hashlib.sha256(filesystem.encode(self.command_line)).hexdigest()[:12]


def run(command: Command, values: Mapping[str, Any], *, suffix: str = "", counts: bool = True) -> Path:
    """Run the role of a toolbox command as a step, and return the directory of the step.

    Args:
        values: the arguments, as `signature.bind` returns them.
        suffix: text to append to the name of the step's directory.
        counts: whether the verdict of the step counts for the enclosing step.

    Raises:
        UsageError: the role does not exist, a host is named twice, or the method refused the arguments. Nothing was
            started.
        StepError: the role failed. The message names the task.
    """
    arguments = dict(values)
    call = RoleCall(command, arguments, arguments.pop(HOSTS.name) or ())
    if LOGIN_TIMEOUT in command.signature.parameters:
        timeout = arguments.pop(LOGIN_TIMEOUT.name, LOGIN_TIMEOUT.default)
        call = dataclasses.replace(call, login_timeout=timeout)
    _check_role(call)
    call = dataclasses.replace(call, values=with_absolute_paths(call.label, call.values, is_remote=bool(call.hosts)))
    hosts = inventory.build(call.hosts)
    name = f"{command.group}__{command.name}{suffix}"
    parent = steps.required(name)
    redactor = parent.recorder.redactor
    redactor.add(secret.reveal() for secret in secrets_in(call.values))
    cancellation.current().check()
    fingerprint = call.fingerprint
    # The method may refuse the arguments, so it is called before the directory of the step is created.
    variables = None if parent.will_be_replayed(name, fingerprint) else _variables(call)
    located = parent.locate(name, StepKind.COMMAND)
    if parent.replayed(located, fingerprint):
        assert located.earlier is not None, "only a step of an earlier session is replayed"
        return parent.recorder.root / located.earlier.step
    if variables is None:
        variables = _variables(call)
    redactor.add(secret.reveal() for secret in secrets_in(variables))
    opened = steps.opened(
        name,
        kind=StepKind.COMMAND,
        detail=call.command_line,
        fingerprint=fingerprint,
        counts=counts,
        located=located,
    )
    with opened as step, scratch.directory() as private:
        _write_request(call, step)
        play = _write_play(call, variables, step=step, private=private)
        try:
            roles = places.folders("roles")
            _run_play(call, step, Play(play, hosts, roles, step.directory, private, uses_ssh=bool(call.hosts)))
        finally:
            step.recorder.sweep(step.identity, step.directory)
        return step.directory


def _variables(call: RoleCall) -> dict[str, Any]:
    """Call the method, and return the variables of the role. A wrong argument is reported before a missing library."""
    returned = with_absolute_paths(call.label, run_body(call.command, call.values), is_remote=bool(call.hosts))
    _check_library(call)
    return {f"{call.role}_{name}": value for name, value in {**call.values, **returned}.items()}


def _check_role(call: RoleCall) -> None:
    """Check that the role can run.

    Raises:
        UsageError: the role does not exist.
    """
    tasks = places.find("roles", call.role, "tasks")
    if tasks is None or not (tasks / "main.yml").exists():
        roles = [path.name for path in places.entries("roles", "*") if (path / "tasks" / "main.yml").is_file()]
        hint = did_you_mean(call.role, roles, label="roles")
        raise UsageError(f"{call.label}: there is no role roles/{call.role}/tasks/main.yml: {hint}")


def _check_library(call: RoleCall) -> None:
    """Raise a `ConfigurationError` if a library of the feature whose modules the role uses is not installed."""
    if (feature := _feature_of(call)) is not None:
        extras.require(extras.of_feature(feature), call.label)


def _feature_of(call: RoleCall) -> str | None:
    """Return the feature whose Ansible modules the role uses. These modules run on this machine."""
    tasks = places.find("roles", call.role, "tasks")
    features = () if tasks is None else map(playbook.feature_of_modules, sorted(tasks.glob("*.yml")))
    return next(filter(None, features), None)


def _write_request(call: RoleCall, step: Step) -> None:
    redactor, directory = step.recorder.redactor, StepDirectory(step.directory)
    states = [directory.state / inventory.name_of(host) for host in call.hosts]
    for folder in (directory.sources, directory.state, *states):
        filesystem.make_directory(folder)
    filesystem.write_text(directory.command, redactor(call.command_line) + "\n")
    arguments = {call.label: plain(call.values)}
    filesystem.write_text(directory.arguments, yaml_text.dump(redactor.redact_nested(arguments)))


def _write_play(call: RoleCall, variables: Mapping[str, Any], *, step: Step, private: Path) -> Path:
    """Write the play, and return the file to run. Variables with secrets are written to a file in `private`."""
    redactor, directory = step.recorder.redactor, step.directory
    secret = {name: plain(value, reveal=True) for name, value in variables.items() if secrets_in(value)}
    secret_files = []
    if secret:
        text = unsafe_yaml.dump(_data(secret))
        secret_files.append(str(filesystem.write_text(private / "secrets.yaml", text)))
    public = {
        **{name: plain(value) for name, value in variables.items() if name not in secret},
        "artifact_dir": str(directory.parent),
        "artifact_extra_logs_dir": str(directory),
    }
    request = (call.role, call.label, public, secret_files)
    login = _login_tasks(call)
    text = _play_text(*request, login_tasks=login)
    redacted = _play_text(*redactor.redact_nested(request), login_tasks=login)
    redacted_file = filesystem.write_text(StepDirectory(directory).play, redacted)
    # If a secret is a common word (`admin`), redaction also changes other parts of the play. So Ansible runs the
    # unredacted play.
    return redacted_file if redacted == text else filesystem.write_text(private / "play.yaml", text)


def _login_tasks(call: RoleCall) -> list[dict[str, Any]]:
    """Return the tasks that log in to the hosts with a time limit, because Ansible has no time limit for a login."""
    if not call.hosts or _feature_of(call) is not None:  # such a role does not connect to the hosts
        return []
    task = {"name": LOGIN, "ansible.builtin.raw": "exit 0", "changed_when": False, "timeout": call.login_timeout}
    return [task]


def _play_text(
    role_name: str,
    label: str,
    variables: Mapping[str, Any],
    secret_files: Sequence[str],
    *,
    login_tasks: Sequence[Mapping[str, Any]],
) -> str:
    play: dict[str, Any] = {
        "name": untrusted(label),
        "hosts": inventory.TARGETS,
        "gather_facts": False,
        "vars": _data(variables),
        "roles": [role_name],
    }
    if login_tasks:
        play["pre_tasks"] = login_tasks
    if secret_files:
        play["vars_files"] = untrusted(secret_files)
    return unsafe_yaml.dump([play])


def _data(variables: Mapping[str, Any]) -> dict[str, Any]:
    return {name: untrusted(value) for name, value in variables.items()}


def _run_play(call: RoleCall, step: Step, play: Play) -> None:
    with RoleEvents(step) as events, _waiting_shown(call, step, events):
        status = playbook.run(play, events.handle)
    if status != 0:
        raise _failure(call, step, events, status)


@contextmanager
def _waiting_shown(call: RoleCall, step: Step, events: RoleEvents) -> Iterator[None]:
    """Show what the command waits for, if a login takes long."""

    def show() -> None:
        waiting = [str(host) for host in call.hosts if inventory.name_of(host) not in events.logins]
        if events.is_logging_in and waiting:
            text = f"waiting for the login to {', '.join(waiting)}, up to {call.login_timeout} s"
            step.recorder.record(Note(step.identity, text))

    timer = threading.Timer(_LONG_LOGIN_SECONDS, show)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _failure(call: RoleCall, step: Step, events: RoleEvents, status: int) -> StepError:
    verdict, cause = step.failure
    failed = events.failed
    if failed is not None and failed.host in events.failed_logins:
        processes.end_marked(step.directory)  # Ansible does not end the `ssh` of a login that takes too long
        output = failed.output
        if any(text in output for text in _TIMED_OUT):
            output = f"the login took longer than {call.login_timeout} s. Raise the limit with --{LOGIN_TIMEOUT.name}"
        message = f"{', '.join(events.hosts_of(failed))}: {output}"
        return StepError(message, verdict=Verdict.ERROR, cause=Cause.INFRASTRUCTURE, directory=step.directory)
    if failed is None:
        message = events.last_lines() or f"ansible-playbook ended with status {status}"
        return StepError(f"{call.label}: {message}", directory=step.directory)
    if failed.status == "unreachable":
        verdict, cause = Verdict.ERROR, Cause.INFRASTRUCTURE
    elif events.cause is not None:
        cause = events.cause
        verdict = Verdict.FAILED if cause in FAILING else Verdict.ERROR
    message = f"task `{failed.name}` {failed.status} on {', '.join(events.hosts_of(failed))}: {failed.output}"
    if events.missing_program:
        return MissingProgram(message, directory=step.directory)
    return StepError(message, verdict=verdict, cause=cause, directory=step.directory)


def _argument(value: Any) -> str:
    if isinstance(value, Secret):
        return value.reference or MASK
    if isinstance(value, str | Path):
        return str(value)
    return yaml_text.dump_line(value)
