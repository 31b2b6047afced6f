"""Toolbox commands that an Ansible role carries out, by ansible-runner.

`@role` turns a method whose body is its docstring into such a command: `Host.capture_state` is the role
`host_capture_state`, and its parameter `packages` is the variable `host_capture_state_packages`. The role runs on
this machine, or on the SSH hosts of `hosts`, by Ansible's own connection and the user's own SSH configuration.

In the step's directory: `_python.cmd`, `_python.args.yaml`, `_ansible.play.yaml`, `_ansible.log`,
`_ansible.events.jsonl`, `src/` (what the role rendered), `artifacts/` (the state it saw), `FAILURE` if it failed.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec

import yaml

from toolbox.interface import signature
from toolbox.interface.registry import HOSTS
from toolbox.model.errors import StepError, UsageError
from toolbox.model.events import Note, StepKind
from toolbox.model.nearest import did_you_mean
from toolbox.model.secrets import Secret
from toolbox.model.verdicts import Cause, Verdict
from toolbox.role_events import RoleEvents
from toolbox.runs import steps
from toolbox.runs.steps import Step
from toolbox.system import cancellation, environ, files, places, processes, scratch

Arguments = ParamSpec("Arguments")

# How often ansible-runner looks up from Ansible's output to see whether it was cancelled.
_CANCEL_POLL_SECONDS: Final = 0.2
_HOST = re.compile(r"(?:(?P<user>[^@\s]+)@)?(?P<host>\[[0-9a-fA-F:.]+\]|[^@:\s]+)(?::(?P<port>\d+))?")
_TEMPLATED = re.compile(r"\{\{|\{%|\{#")
_ANSIBLE_SETTINGS: Final = {
    "ANSIBLE_NOCOLOR": "1",
    "ANSIBLE_PIPELINING": "1",  # no copy of a module, and so of its arguments, is left on the host
    "ANSIBLE_RETRY_FILES_ENABLED": "0",
    "ANSIBLE_PYTHON_INTERPRETER": "auto_silent",
    "ANSIBLE_LOCALHOST_WARNING": "0",
    "ANSIBLE_INVENTORY_UNPARSED_WARNING": "0",
    "ANSIBLE_SSH_ARGS": "-C -o ControlMaster=auto -o ControlPersist=10s -o BatchMode=yes",
}


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
        words = ["./run_toolbox.py", self.group, self.command]
        words += [f"--{name}={_argument(value)}" for name, value in self.values.items()]
        if self.hosts:
            words.append(f"--hosts={','.join(self.hosts)}")
        return shlex.join(words)


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
        suffix, counts = given.pop("artifact_dir_suffix", None), given.pop("counts", True)
        values = signature.bind(described, given, text=False)
        hosts = values.pop(HOSTS.name) or ()
        return run(RoleCall(group, command, values, hosts, suffix or "", counts))

    call.role = f"{group}_{command}"  # type: ignore[attr-defined]  # how the registry tells such a command
    return call


def run(call: RoleCall) -> RoleOutcome:
    """Run a role as a step, and return what it left.

    Raises:
        UsageError: there is no such role, or a host is not one. Nothing was started.
        StepError: the role failed; the message names the task.
    """
    _check_role(call)
    inventory = _inventory(call.hosts)
    name = f"{call.group}__{call.command}{call.suffix}"
    with (
        steps.opened(name, kind=StepKind.COMMAND, detail=call.command_line, counts=call.counts) as step,
        scratch.directory() as private,
    ):
        step.recorder.redactor.add(secret.reveal() for secret in _secrets(call.values))
        play = _write_request(call, step, private)
        try:
            _run_play(call, step, play, inventory, private)
        finally:
            _sweep(step)
        return RoleOutcome(step.directory)


def _check_role(call: RoleCall) -> None:
    if places.find("roles", call.role, "tasks", "main.yml") is None:
        known = [path.name for path in places.entries("roles", "*") if path.is_dir()]
        hint = did_you_mean(call.role, known, what="roles")
        raise UsageError(
            f"{call.group} {call.command}: there is no role roles/{call.role}/tasks/main.yml: {hint}"
        )


def _inventory(hosts: Sequence[str]) -> dict[str, Any]:
    if not hosts:
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        return {"all": {"hosts": {"localhost": local}}}
    found: dict[str, dict[str, Any]] = {}
    for text in hosts:
        match = _HOST.fullmatch(text)
        if match is None or match["host"].startswith("-"):
            raise UsageError(f"--hosts: {text!r} is not a host: write [USER@]HOST[:PORT]")
        found[match["host"]] = {
            key: value
            for key, value in (
                ("ansible_user", match["user"]),
                ("ansible_port", int(match["port"]) if match["port"] else None),
            )
            if value
        }
    return {"all": {"hosts": found}}


def _write_request(call: RoleCall, step: Step, private: Path) -> Path:
    redactor, directory = step.recorder.redactor, step.directory
    for folder in ("src", "artifacts"):
        files.make_directory(directory / folder)
    files.write_text(directory / "_python.cmd", redactor(call.command_line) + "\n")
    label = f"{call.group} {call.command}"
    arguments = {label: {name: _plain(value) for name, value in call.values.items()}}
    files.write_text(directory / "_python.args.yaml", redactor(files.dump_yaml(arguments)))

    variables = {f"{call.role}_{name}": value for name, value in call.values.items()}
    secret = {name: value for name, value in variables.items() if any(True for _ in _secrets(value))}
    play: dict[str, Any] = {
        "name": label,
        "hosts": "all",
        "gather_facts": False,
        "vars": {
            **{name: _plain(value) for name, value in variables.items() if name not in secret},
            "artifact_dir": str(directory.parent),
            "artifact_extra_logs_dir": str(directory),
        },
        "roles": [call.role],
    }
    if secret:
        secrets_file = files.write_text(
            private / "secrets.yaml", _dump({n: _revealed(v) for n, v in secret.items()})
        )
        play["vars_files"] = [str(secrets_file)]
    return files.write_text(directory / "_ansible.play.yaml", redactor(_dump([play])))


def _run_play(call: RoleCall, step: Step, play: Path, inventory: dict[str, Any], private: Path) -> None:
    import ansible_runner  # slow to import, and needed only here

    scope = cancellation.current()
    scope.check()
    done = scope.add(lambda: processes.end_marked(step.directory))
    with RoleEvents(step) as events:
        try:
            result = ansible_runner.run(
                private_data_dir=str(private),
                playbook=str(play),
                inventory=inventory,
                roles_path=os.pathsep.join(str(root / "roles") for root in places.roots()),
                envvars=_variables(step, private),
                settings={"pexpect_timeout": _CANCEL_POLL_SECONDS, "suppress_output_file": True},
                suppress_env_files=True,
                quiet=True,
                verbosity=1,
                event_handler=events.handle,
                # Without one of ours ansible-runner would set signal handlers. We end its processes ourselves.
                cancel_callback=lambda: False,
            )
        except BaseException:
            processes.end_marked(step.directory)
            raise
        finally:
            done()
    scope.check()
    if result.status != "successful":
        raise _failure(call, step, events, result.rc)


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
    message = f"task `{failed.name}` {failed.status} on {failed.host}: {failed.output}"
    return StepError(message, verdict=verdict, cause=cause, directory=step.directory)


def _variables(step: Step, private: Path) -> dict[str, str]:
    variables = processes.environment(step.directory, _ANSIBLE_SETTINGS)
    # A virtual environment that is not activated still has its own ansible-playbook.
    variables["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), variables.get("PATH", os.defpath)])
    # Without the user's word, a configuration in the working or home directory must not change what a role does.
    own = environ.get("ANSIBLE_CONFIG") or str(files.write_text(private / "ansible.cfg", ""))
    variables["ANSIBLE_CONFIG"] = own
    variables["ANSIBLE_LOCAL_TEMP"] = str(private / "tmp")
    return variables


def _sweep(step: Step) -> None:
    for file in step.recorder.redactor.sweep(step.directory):
        text = f"a secret was taken out of {file.relative_to(step.directory)}"
        step.recorder.record(Note(step.identity, text))


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
    return " ".join(
        yaml.safe_dump(value, default_flow_style=True, width=10_000).replace("\n...\n", "").split("\n")
    ).strip()


class _PlayDumper(files.Dumper):
    """Marks text that looks like a template, so that Ansible hands it over as it is."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    if _TEMPLATED.search(text):
        return dumper.represent_scalar("!unsafe", text, style='"')
    return dumper.represent_scalar("tag:yaml.org,2002:str", text)


_PlayDumper.add_representer(str, _represent_text)


def _dump(value: object) -> str:
    return yaml.dump(value, Dumper=_PlayDumper, sort_keys=False, allow_unicode=True, width=110)
