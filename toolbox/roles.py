"""Toolbox commands that an Ansible role carries out, by ansible-runner.

`@role` turns a method whose body is its docstring into such a command: `Host.capture_state` is the role
`host_capture_state`, and its parameter `packages` is the variable `host_capture_state_packages`. The role runs on
this machine, or on the SSH hosts of `hosts`, by Ansible's own connection and the user's own SSH configuration.

In the step's directory: `_python.cmd`, `_python.args.yaml`, `_ansible.play.yaml`, `_ansible.log`,
`_ansible.events.jsonl`, `src/` (what the role rendered), `artifacts/` (the state it saw; of SSH hosts in
`artifacts/HOST/`), `FAILURE` if it failed.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, cast

import yaml

from toolbox import playbook
from toolbox.interface import signature
from toolbox.interface.registry import HOSTS
from toolbox.model.errors import StepError, UsageError
from toolbox.model.events import StepKind
from toolbox.model.nearest import did_you_mean
from toolbox.model.secrets import Secret
from toolbox.model.verdicts import Cause, Verdict
from toolbox.playbook import Play
from toolbox.role_events import RoleEvents
from toolbox.runs import steps
from toolbox.runs.steps import Step
from toolbox.system import cancellation, environ, files, places, scratch
from toolbox.system.redaction import Redactor

Arguments = ParamSpec("Arguments")

_HOST = re.compile(r"(?:(?P<user>[^@\s]+)@)?(?P<host>\[[0-9a-fA-F:.]+\]|[^@:\s]+)(?::(?P<port>\d+))?")
_TARGETS: Final = "targets"
_TEMPLATED = re.compile(r"\{\{|\{%|\{#")


@dataclass(frozen=True, slots=True)
class RoleCall:
    """A request to run the role of a toolbox command.

    Args:
        values: the arguments, converted, by parameter.
        hosts: the SSH hosts; none for this machine.
        suffix: what the name of the step's directory ends with.
        counts: see `toolbox.runs.steps.Step`.
    """

    group: str
    command: str
    values: Mapping[str, Any]
    hosts: Sequence[str] = ()
    suffix: str = ""
    counts: bool = True

    @property
    def role(self) -> str:
        """The name of the role."""
        return f"{self.group}_{self.command}"

    @property
    def command_line(self) -> str:
        """The command line that reproduces the step. Secrets are left out of it."""
        words = [environ.program(), self.group, self.command]
        words += [f"--{name}={_argument(value)}" for name, value in self.values.items()]
        if self.hosts:
            words.append(f"--hosts={','.join(self.hosts)}")
        return shlex.join(words)

    def fingerprint(self, redactor: Redactor) -> str:
        """Return what tells this call from another one. A secret counts by its reference."""
        return hashlib.sha256(redactor(self.command_line).encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class RoleOutcome:
    """What a toolbox command left.

    Args:
        directory: the step's directory.
    """

    directory: Path

    @property
    def artifacts(self) -> Path:
        """Where the state that the role saw is."""
        return self.directory / "artifacts"


def role(
    method: Callable[Concatenate[Any, Arguments], None],
) -> Callable[Concatenate[Any, Arguments], RoleOutcome]:
    """Turn a method into a toolbox command that the role of its name carries out."""
    group = re.sub(r"(?<!^)(?=[A-Z])", "_", method.__qualname__.split(".")[-2]).lower()
    command = method.__name__

    @functools.wraps(method)
    def call(_self: Any, *args: Any, **kwargs: Any) -> RoleOutcome:
        described = signature.of(method, name=f"{group} {command}", extra=[HOSTS])
        names = [parameter.name for parameter in described.parameters]
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        values = signature.bind(described, given, text=False)
        hosts = values.pop(HOSTS.name) or ()
        return run(RoleCall(group, command, values, hosts))

    call.role = f"{group}_{command}"  # type: ignore[attr-defined]  # how the registry tells such a command
    return cast("Callable[Concatenate[Any, Arguments], RoleOutcome]", call)


def run(call: RoleCall) -> RoleOutcome:
    """Run a role as a step, and return what it left.

    Raises:
        UsageError: there is no such role, or a host is not one. Nothing was started.
        StepError: the role failed; the message names the task.
    """
    _check_role(call)
    call = dataclasses.replace(call, values={name: _located(name, value, call) for name, value in call.values.items()})
    inventory = _inventory(call.hosts)
    name = f"{call.group}__{call.command}{call.suffix}"
    parent = steps.required(name)
    cancellation.current().check()
    place, fingerprint = parent.place(name, StepKind.COMMAND), call.fingerprint(parent.recorder.redactor)
    if parent.answered(place, fingerprint):
        assert place.before is not None, "it answered"
        return RoleOutcome(parent.recorder.root / place.before.started.step)
    opened = steps.opened(
        name,
        kind=StepKind.COMMAND,
        detail=call.command_line,
        fingerprint=fingerprint,
        counts=call.counts,
        place=place,
    )
    with (
        opened as step,
        scratch.directory() as private,
    ):
        step.recorder.redactor.add(secret.reveal() for secret in _secrets(call.values))
        play = _write_request(call, step, private)
        roles = [root / "roles" for root in places.roots()]
        try:
            _run_play(call, step, Play(play, inventory, roles, step.directory, private))
        finally:
            steps.sweep(step)
        return RoleOutcome(step.directory)


def _check_role(call: RoleCall) -> None:
    if places.find("roles", call.role, "tasks", "main.yml") is None:
        known = [path.name for path in places.entries("roles", "*") if (path / "tasks" / "main.yml").is_file()]
        hint = did_you_mean(call.role, known, what="roles")
        raise UsageError(f"{call.group} {call.command}: there is no role roles/{call.role}/tasks/main.yml: {hint}")


def _inventory(hosts: Sequence[str]) -> dict[str, Any]:
    # What a role delegates to localhost is done here, also where a host is reached at an address of this machine.
    here = {"localhost": {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}}
    targets: dict[str, dict[str, Any]] = {}
    for text in hosts:
        name, variables = _target(text)
        if targets.setdefault(name, variables) != variables:
            raise UsageError(f"--hosts: {name} is named twice, with different users: {', '.join(hosts)}")
    groups = {_TARGETS: {"hosts": targets or here}, "controller": {"hosts": here}}
    return {"all": {"children": groups}}


def _target(text: str) -> tuple[str, dict[str, Any]]:
    """Return the name of a host, with its port if one is given (a tunnel's address has several), and its variables."""
    match = _HOST.fullmatch(text)
    if match is None or match["host"].startswith("-"):
        raise UsageError(f"--hosts: {text!r} is not a host: write [USER@]HOST[:PORT]")
    address, port = match["host"].strip("[]"), match["port"]
    variables = {
        "ansible_host": address,
        "ansible_user": match["user"],
        "ansible_port": int(port) if port else None,
        # As a variable roles see it too, for the programs that they run there.
        "ansible_python_interpreter": environ.get("ANSIBLE_PYTHON_INTERPRETER"),
    }
    # `localhost` itself is how roles name this machine without SSH.
    name = f"{address}-{port or 'ssh'}" if port or address == "localhost" else address
    return name, {key: value for key, value in variables.items() if value}


def _write_request(call: RoleCall, step: Step, private: Path) -> Path:
    redactor, directory = step.recorder.redactor, step.directory
    for folder in ("src", "artifacts", *(f"artifacts/{_target(host)[0]}" for host in call.hosts)):
        files.make_directory(directory / folder)
    files.write_text(directory / "_python.cmd", redactor(call.command_line) + "\n")
    label = f"{call.group} {call.command}"
    arguments = {label: {name: _plain(value) for name, value in call.values.items()}}
    files.write_yaml(directory / "_python.args.yaml", redactor.texts(arguments))

    variables = {f"{call.role}_{name}": value for name, value in call.values.items()}
    secret = {name: value for name, value in variables.items() if any(True for _ in _secrets(value))}
    play: dict[str, Any] = {
        "name": label,
        "hosts": _TARGETS,
        "gather_facts": False,
        "vars": {
            **{name: _plain(value) for name, value in variables.items() if name not in secret},
            "artifact_dir": str(directory.parent),
            "artifact_extra_logs_dir": str(directory),
        },
        "roles": [call.role],
    }
    if secret:
        secrets_file = files.write_text(private / "secrets.yaml", _dump({n: _revealed(v) for n, v in secret.items()}))
        play["vars_files"] = [str(secrets_file)]
    shown = redactor.texts(play)
    kept = files.write_text(directory / "_ansible.play.yaml", _dump([shown]))
    # A secret can be a word that stands elsewhere too (`admin`): what runs is whole.
    return kept if shown == play else files.write_text(private / "play.yaml", _dump([play]))


def _run_play(call: RoleCall, step: Step, play: Play) -> None:
    with RoleEvents(step) as events:
        status = playbook.run(play, events.handle)
    if status != 0:
        raise _failure(call, step, events, status)


def _failure(call: RoleCall, step: Step, events: RoleEvents, status: int) -> StepError:
    verdict, cause = step.failure
    failed = events.failed
    if failed is None:
        message = events.last_lines() or f"ansible-playbook ended with status {status}"
        return StepError(
            f"{call.group} {call.command}: {message}",
            verdict=Verdict.ERROR,
            cause=Cause.INFRASTRUCTURE,
            directory=step.directory,
        )
    if failed.status == "unreachable":
        verdict, cause = Verdict.ERROR, Cause.INFRASTRUCTURE
    elif events.is_misconfigured:
        verdict, cause = Verdict.ERROR, Cause.CONFIGURATION
    message = f"task `{failed.name}` {failed.status} on {', '.join(events.hosts_of(failed))}: {failed.output}"
    return StepError(message, verdict=verdict, cause=cause, directory=step.directory)


def _located(name: str, value: Any, call: RoleCall) -> Any:
    """Return a path as the role needs it: it does not run where the caller stands. `~` is the home of the host."""
    if not isinstance(value, Path):
        return value
    if not call.hosts:
        return environ.expanded(value).absolute()
    if not value.is_absolute() and not str(value).startswith("~"):
        raise UsageError(f"{call.group} {call.command}: --{name}={value}: a path on another host has to be absolute")
    return value


def _secrets(value: Any) -> list[Secret]:
    if isinstance(value, Secret):
        return [value]
    if isinstance(value, Mapping):
        return [secret for item in value.values() for secret in _secrets(item)]
    if isinstance(value, list | tuple):
        return [secret for item in value for secret in _secrets(item)]
    return []


def _revealed(value: Any) -> Any:
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, Mapping):
        return {key: _revealed(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_revealed(item) for item in value]
    return _plain(value)


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def _argument(value: Any) -> str:
    if isinstance(value, str | Path | Secret):
        return str(value)
    return files.dump_yaml_line(value)


class _PlayDumper(files.Dumper):
    """Marks text that looks like a template, so that Ansible hands it over as it is."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    if _TEMPLATED.search(text):
        return dumper.represent_scalar("!unsafe", text, style='"')
    return dumper.represent_scalar("tag:yaml.org,2002:str", text)


_PlayDumper.add_representer(str, _represent_text)


def _dump(value: object) -> str:
    return yaml.dump(value, Dumper=_PlayDumper, sort_keys=False, allow_unicode=True, width=sys.maxsize)
