"""The configuration of the running project: `config.project.get_config("tests.capture_state")`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from typing import Any, Final

import yaml

from toolbox.config.configuration import Configuration
from toolbox.config.references import MISSING
from toolbox.ground.model import yaml_text
from toolbox.ground.model.errors import ConfigurationError
from toolbox.ground.model.events import ConfigurationChanged
from toolbox.ground.model.text import first_of
from toolbox.matrix import frozen_fields
from toolbox.orchestration import projects, session
from toolbox.orchestration.parallel import region
from toolbox.orchestration.session import Session
from toolbox.records.runs.layout import CLEANUP

_MAX_SHOWN_FIELDS: Final = 3


class Project:
    """The configuration of the running project."""

    def get_config(self, path: str, default: object = MISSING) -> Any:
        """Return the value at a path, with its references replaced by their values. A secret is a `Secret`.

        Args:
            path: for example `a.b`, `a["key.with.dots"]` or `a[0]`; `$` is the whole document.
            default: the value to return if the field does not exist. Without a default, a missing field is an error.

        Raises:
            ConfigurationError: the field does not exist, or a reference is wrong.
        """
        return session.current().configuration.get(path, default)

    def set_config(self, path: str, value: object) -> None:
        """Replace the value of an existing field for the rest of the run.

        Raises:
            ConfigurationError: the field does not exist; the value breaks a contract or a reference; a cell of the
                matrix has not run, and refers to the field; the caller is not the main thread; or the call is inside
                a parallel region, where other tasks may be reading the field.
        """
        if (name := region.get()) is not None:
            raise ConfigurationError(
                f"set_config({path!r}): the configuration cannot be changed in the parallel region `{name}`"
            )
        if threading.current_thread() is not threading.main_thread():
            thread = threading.current_thread().name
            raise ConfigurationError(
                f"set_config({path!r}): only the main thread can change the configuration, not {thread}"
            )
        current = session.current()
        caller = sys._getframe(1)  # noqa: SLF001  # `inspect` is slower, and this function is documented
        layer = f"set_config ({caller.f_code.co_filename}:{caller.f_lineno})"
        # Every check comes before the assignment to `current.configuration`, so that no code reads a wrong value.
        try:
            text = yaml_text.dump_line(value)
        except yaml.YAMLError:
            kind = type(value).__name__
            raise ConfigurationError(f"set_config({path!r}): a configuration cannot hold a {kind}") from None
        changed = current.configuration.replaced(path, value, layer=layer)
        changed.check()
        if cell_fields := _planned_fields(current, changed):
            if not _cells_are_over(current):
                raise ConfigurationError(_refusal(path, cell_fields))
            current.cells_configuration = current.cells_configuration or current.configuration
            got = yaml_text.dump_line(current.cells_configuration.get(path))
            current.late_changes.append(f"{path} was {got} when the cells ran: {layer} changed the value afterwards")
        current.configuration = changed
        recorder = session.step().recorder
        recorder.redactor.add(changed.secret_values())
        recorder.record(ConfigurationChanged(path, text, layer))
        if current.config_file is not None:
            session.write_configuration(
                current.configuration, current.config_file, recorder.redactor, notes=current.late_changes
            )


def _planned_fields(current: Session, changed: Configuration) -> list[str]:
    """Return the fields of the planned cells that a change would reach too late, also by `derive` of the project."""
    fields = frozen_fields.changed(current.configuration, changed, current.plan)
    if fields or current.plan is None or _cells_are_over(current):
        return fields
    files = projects.find(current.project)
    before, after = (projects.derived_values(files, each) for each in (current.configuration, changed))
    return [path for path in {**before, **after} if before.get(path) != after.get(path)]


def _cells_are_over(current: Session) -> bool:
    """Return whether no cell of this run can start any more."""
    return current.matrix_has_run or session.step().key.startswith(f"/{CLEANUP}")


def _refusal(path: str, fields: Sequence[str]) -> str:
    names = ", ".join(first_of([f"`{field}`" for field in fields], _MAX_SHOWN_FIELDS))
    return (
        f"set_config({path!r}): the cells of the matrix are planned before the first phase, and use the old value in "
        f"{names}\n  set the field in a preset, with --overrides, or in the function `resolve` of orchestration.py"
    )


project: Final = Project()
