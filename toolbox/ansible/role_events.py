"""Handles the events of Ansible while a role runs: redacts their secrets, writes them to files, and records tasks.

ansible-runner defines the events (https://ansible.readthedocs.io/projects/runner/en/stable/intro/).
"""

from __future__ import annotations

import errno
import json
import shlex
from collections import deque
from pathlib import Path
from typing import Any, Final, Self

from toolbox.ground.model.events import Note, TaskFinished, TaskStarted
from toolbox.ground.model.text import reason_first
from toolbox.ground.model.verdicts import CAUSE_KEY, Cause
from toolbox.ground.system import filesystem
from toolbox.records.runs.layout import StepDirectory
from toolbox.records.runs.steps import Step

LOGIN: Final = "Log in"
"""The task before those of a role that logs in to the hosts."""
_MAX_LINES: Final = 4
_NOT_STARTED: Final = ("Error executing command", "[Errno 2]")  # of ansible-core 2.19, and of earlier versions
_RAW_FAILED: Final = "non-zero return code"
_SSH_OUTPUT: Final = "via ssh: "  # in messages of Ansible, the output of `ssh` follows
_STATUS: Final = {
    "runner_on_ok": "ok",
    "runner_on_failed": "failed",
    "runner_on_unreachable": "unreachable",
    "runner_on_skipped": "skipped",
}


class RoleEvents:
    """Handles the events of one run of a role."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._redact = step.recorder.redactor
        self._events = _open(StepDirectory(step.directory).role_events)
        self._log = _open(StepDirectory(step.directory).role_log)
        self._failures: list[tuple[TaskFinished, str]] = []  # each failed task, and the cause that it reported or ""
        self._missing: dict[tuple[str, str], str] = {}  # programs that this machine does not have, by host and task
        self._rescued = False
        self.is_logging_in = False
        self.logins: set[str] = set()  # the hosts whose login has succeeded or failed
        self.failed_logins: set[str] = set()
        self._tail: deque[str] = deque(maxlen=_MAX_LINES)

    @property
    def failed(self) -> TaskFinished | None:
        """The task that made the role fail: the first failed task, or the last one if a `rescue` handled a failure."""
        return self._failures[self._index][0] if self._failures else None

    @property
    def cause(self) -> Cause | None:
        """The cause that the failed task reported; None if the task did not report a cause."""
        reported = self._failures[self._index][1] if self._failures else ""
        return Cause(reported) if reported in set(Cause) else None

    @property
    def missing_program(self) -> str:
        """The program that the failed task could not start because this machine does not have it; empty otherwise."""
        failed = self.failed
        return self._missing.get((failed.host, failed.name), "") if failed is not None else ""

    @property
    def _index(self) -> int:
        return -1 if self._rescued else 0

    def hosts_of(self, failed: TaskFinished) -> list[str]:
        """Return the hosts on which a task failed."""
        return list(dict.fromkeys(failure.host for failure, _ in self._failures if failure.name == failed.name))

    def last_lines(self) -> str:
        """Return the last lines of Ansible's output, for an error that is not the failure of a task."""
        return " / ".join(self._tail)

    def handle(self, event: dict[str, Any]) -> bool:
        """Handle an event of ansible-runner. Return False, so that ansible-runner writes no file for the event."""
        # Redact the texts and not the JSON, in which a secret of digits could match a part of a number.
        redacted = {key: self._redact.redact_nested(value) for key, value in event.items()}
        self._events.write(json.dumps(redacted, ensure_ascii=False, default=str) + "\n")
        if printed := redacted.get("stdout", ""):
            self._log.write(printed.replace("\r\n", "\n") + "\n")
            lines = (line.strip() for line in printed.splitlines())
            self._tail.extend(line for line in lines if line and not line.startswith("Using "))
        self._show(event["event"], event.get("event_data", {}))
        return False

    def close(self) -> None:
        """Close the files."""
        self._events.close()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _show(self, kind: str, data: dict[str, Any]) -> None:
        if kind == "playbook_on_task_start":
            self.is_logging_in = data.get("name") == LOGIN  # tasks of a role are named `ROLE : TASK`
            self._step.recorder.record(TaskStarted(self._step.identity, _task_name(data)))
        elif kind == "playbook_on_stats":
            self._rescued = any(data.get("rescued", {}).values())
        elif kind in _STATUS:
            finished = self._finished(kind, data)
            self._step.recorder.record(finished)
            if self.is_logging_in:
                self.logins.add(finished.host)
                self.failed_logins |= {finished.host} if finished.status == "failed" else set()
            for text in self._redact.redact_nested((data.get("res") or {}).get("warnings") or []):
                self._step.recorder.record(Note(self._step.identity, str(text)))
            if finished.status in {"failed", "unreachable"}:
                if _runs_here(data) and (program := _missing_program(data.get("res") or {})):
                    self._missing[finished.host, finished.name] = self._redact(program)
                self._failures.append((finished, str((data.get("res") or {}).get(CAUSE_KEY, ""))))

    def _finished(self, kind: str, data: dict[str, Any]) -> TaskFinished:
        # Redact before `_command` quotes the command for a shell: a quoted secret might not be recognized.
        result = {key: self._redact.redact_nested(value) for key, value in (data.get("res") or {}).items()}
        status = _STATUS[kind]
        if status == "ok" and result.get("changed"):
            status = "changed"
        if status == "failed" and data.get("ignore_errors"):
            status = "ignored"
        output = _failure_text(result) if status in {"failed", "unreachable", "ignored"} else _output(result)
        return TaskFinished(
            self._step.identity,
            self._redact(_task_name(data)),
            str(data.get("host", "")),
            status,
            self._redact(_command(result)),
            self._redact(output),
            round(float(data.get("duration") or 0), 3),
        )


def _open(path: Path) -> Any:
    # The output of a program may contain bytes that are not UTF-8.
    return open(path, "a", encoding="utf-8", errors="backslashreplace", buffering=1, opener=filesystem.private_opener)


def _task_name(data: dict[str, Any]) -> str:
    name = str(data.get("task") or data.get("name") or "")
    return name.partition(" : ")[2] or name


def _command(result: dict[str, Any]) -> str:
    command = result.get("cmd") or ""
    return shlex.join(map(str, command)) if isinstance(command, list) else str(command)


def _output(result: dict[str, Any]) -> str:
    if result.get("censored"):
        return ""
    texts = [result.get("stdout"), result.get("stderr")]
    if "cmd" not in result and isinstance(result.get("msg"), str):
        texts.append(result["msg"])
    return "\n".join(text.rstrip() for text in texts if isinstance(text, str) and text.strip())


def _runs_here(data: dict[str, Any]) -> bool:
    """Return whether a task runs on this machine: on `localhost`, or delegated to it."""
    delegated = (data.get("res") or {}).get("_ansible_delegated_vars") or {"ansible_host": data.get("host")}
    return bool(delegated.get("ansible_host") == "localhost")


def _missing_program(result: dict[str, Any]) -> str:
    """Return the program that a module could not start because it does not exist; empty for any other result."""
    is_missing = result.get("rc") == errno.ENOENT and str(result.get("msg")).startswith(_NOT_STARTED)
    words = _command(result).split() if is_missing else []
    return words[0] if words else ""


def _failure_text(result: dict[str, Any]) -> str:
    if censored := result.get("censored"):
        return str(censored)
    items = [item for item in result.get("results") or () if isinstance(item, dict) and item.get("failed")]
    if items:
        return _failure_text(items[0])
    message = str(result.get("msg") or "the task failed without a message").strip()
    error = str(result.get("stderr") or result.get("module_stderr") or "").strip().splitlines()
    if program := _missing_program(result):
        message = f"there is no program `{program}`: install it, or add its folder to $PATH"
    elif "cmd" in result:
        message = f"`{_command(result)}` ended with status {result.get('rc')}"
    elif message == _RAW_FAILED:
        message = f"the command ended with status {result.get('rc')}"
        error = [*str(result.get("stdout") or "").strip().splitlines(), *error]
    beginning, marker, output = message.partition(_SSH_OUTPUT)
    message = f"{beginning}{marker}{reason_first(output)}" if marker else message
    return "\n".join([message, *error[-_MAX_LINES:]])
