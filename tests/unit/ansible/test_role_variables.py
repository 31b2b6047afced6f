"""The method of a command may change the variables of its role."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolbox.ansible.role_variables import run_body
from toolbox.ground.interface import signature
from toolbox.ground.interface.registry import Command
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.secrets import Secret


class Disk:
    """A class with methods like those of commands."""

    def nothing(self, path: Path) -> None:
        """Return nothing."""

    def mapped(self, path: Path, unit: str = "g") -> dict[str, Any]:
        """Return all local variables."""
        unit = unit.upper()
        label = f"{path}:{unit}"
        assert label
        return locals()

    def replaced(self, path: Path) -> dict[str, Any]:
        """Return text in place of an argument, and another variable."""
        return {"path": f"{path}/inner", "extra": [1, None, {"a": Path("/b")}]}

    def several(self, unit: str, *paths: str) -> dict[str, Any]:
        """Return a variable that is computed from all remaining arguments."""
        return {"joined": unit.join(paths)}

    def secret(self, token: Secret) -> dict[str, Any]:
        """Return variables that contain a secret."""
        return {"key": token, "keys": [token]}


def run(method: Callable[..., Any], **values: Any) -> dict[str, Any]:
    """Run the body of a method, and return the variables that it adds."""
    described = signature.of(method, name="disk measure")
    return run_body(Command("disk", "measure", method, described, "disk_measure"), values)


def test_a_method_without_a_body_adds_nothing() -> None:
    assert run(Disk().nothing, path=Path("/a")) == {}


def test_locals_of_a_body_are_variables_except_for_self() -> None:
    assert run(Disk().mapped, path=Path("/a"), unit="g") == {"path": Path("/a"), "unit": "G", "label": "/a:G"}


def test_a_replaced_argument_has_the_type_of_its_parameter() -> None:
    found = run(Disk().replaced, path=Path("/a"))
    assert found == {"path": Path("/a/inner"), "extra": [1, None, {"a": Path("/b")}]}


def test_a_body_accepts_a_list_of_arguments() -> None:
    assert run(Disk().several, unit="-", paths=["a", "b"]) == {"joined": "a-b"}


def test_a_secret_stays_a_secret() -> None:
    token = Secret("hunter2")
    assert run(Disk().secret, token=token) == {"key": token, "keys": [token]}


def _refuse(path: str) -> None:
    raise ValueError(f"{path} is not a disk")


def _leave(path: str) -> None:
    sys.exit(f"{path} is not a disk")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (_refuse, "disk measure: /a is not a disk"),
        (_leave, r"disk measure: the body of its method ended with sys\.exit\('/a is not a disk'\)"),
        (len, "disk measure: its method must return None or a mapping of "),
        (lambda path: {"a b": path}, "disk measure: its method returned 'a b', which cannot name a variable"),
        (lambda path: {1: path}, "disk measure: its method returned 1, which cannot name a variable"),
        (lambda path: {"made": iter(path)}, "disk measure: its method returned `made` of type str_ascii_iterator: "),
        (
            lambda path: {"path": len(path) * 2.75j},
            "disk measure: its method returned a wrong argument: --path must be text, not 5.5j",
        ),
    ],
)
def test_a_method_that_refuses_or_returns_no_variables_is_an_error(body: Callable[..., Any], message: str) -> None:
    def measure(path: str) -> Any:
        return body(path)

    with pytest.raises(UsageError, match=message):
        run(measure, path="/a")


def test_a_fault_in_a_body_keeps_its_traceback() -> None:
    def broken(path: str) -> None:
        sys.modules[path]

    with pytest.raises(KeyError):
        run(broken, path="/a")
