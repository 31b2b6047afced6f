"""The configuration of the running project: `config.project.get_config("tests.capture_state")`."""

from __future__ import annotations

import sys
import threading
from typing import Any, Final

import yaml

from toolbox.config.references import MISSING
from toolbox.model.errors import ConfigurationError
from toolbox.model.events import ConfigurationChanged
from toolbox.orchestration import session
from toolbox.orchestration.parallel import region
from toolbox.system import filesystem


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
            ConfigurationError: the field does not exist; the value breaks a contract or a reference; the caller is not
                the main thread; or the call is inside a parallel region, where other tasks may be reading the field.
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
            text = filesystem.dump_yaml_line(value)
        except yaml.YAMLError:
            kind = type(value).__name__
            raise ConfigurationError(f"set_config({path!r}): a configuration cannot hold a {kind}") from None
        changed = current.configuration.replaced(path, value, layer=layer)
        changed.check()
        current.configuration = changed
        recorder = session.step().recorder
        recorder.redactor.add(changed.secret_values())
        recorder.record(ConfigurationChanged(path, text, layer))
        if current.config_file is not None:
            session.write_configuration(current.configuration, current.config_file, recorder.redactor)


project: Final = Project()
