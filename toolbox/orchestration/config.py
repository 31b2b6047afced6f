"""The configuration of the project at work: `config.project.get_config("tests.capture_state")`."""

from __future__ import annotations

import sys
import threading
from typing import Any, Final

import yaml

from toolbox.config.configuration import MISSING
from toolbox.model.errors import ConfigurationError
from toolbox.model.events import ConfigurationChanged
from toolbox.orchestration import region, session
from toolbox.system import filesystem


class Project:
    """The configuration of the project at work."""

    def get_config(self, path: str, default: object = MISSING) -> Any:
        """Return the value at a path, references followed; a secret is a `Secret`.

        Args:
            path: `a.b`, `a["key.with.dots"]`, `a[0]`; `$` is the document.
            default: what to return where there is no such field, instead of an error.

        Raises:
            ConfigurationError: there is no such field, or a reference is wrong.
        """
        return session.current().configuration.get(path, default)

    def set_config(self, path: str, value: object) -> None:
        """Replace an existing field for what follows.

        Raises:
            ConfigurationError: there is no such field; or the call does not come from the main thread, or comes
                from a parallel region, where another task could see the old value or the new one; or the value
                breaks a contract or a reference.
        """
        if (name := region.current()) is not None:
            raise ConfigurationError(
                f"set_config({path!r}): the configuration cannot be changed in the parallel region `{name}`"
            )
        if threading.current_thread() is not threading.main_thread():
            thread = threading.current_thread().name
            raise ConfigurationError(
                f"set_config({path!r}): only the main thread can change the configuration, not {thread}"
            )
        current = session.current()
        caller = sys._getframe(1)  # noqa: SLF001  # documented; `inspect` has nothing that is as cheap
        layer = f"set_config ({caller.f_code.co_filename}:{caller.f_lineno})"
        # All that can be wrong with it is found before anybody sees it.
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
