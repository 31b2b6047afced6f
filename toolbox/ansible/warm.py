"""Starts the helper processes that make Ansible quick: one that has imported ansible-core, and one for modules.

`opened` makes the helpers available to the toolbox commands in its body. The first command starts the helper for plays,
and the first task of a play starts the helper for modules.
"""

from __future__ import annotations

import logging
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Final

from toolbox.ansible import playbook_server
from toolbox.ground.kit.process_tree import MARK
from toolbox.ground.system import environ, places, scratch
from toolbox.ground.system.context_values import ContextValue
from toolbox.ground.system.fork_servers import ForkedProcess, ForkServer
from toolbox.targets.agent import module_server

log = logging.getLogger(__name__)

SWITCH: Final = "TOPGALLANT_ANSIBLE_WARM"
"""With the value `0`, Ansible and its modules are started as ordinary programs."""
_SLOW: Final = "Ansible starts slowly, as an ordinary program: %s"


class AnsibleServers:
    """The helper processes, which are started when they are needed.

    Args:
        directory: a private directory.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._playbooks: ForkServer | None = None
        self._modules: ForkServer | None = None
        self._was_reported = False
        (directory / "ansible.cfg").touch()

    @property
    def config(self) -> Path:
        """An empty configuration file of Ansible, which is the same for all plays."""
        return self._directory / "ansible.cfg"

    def start_play(self, args: Sequence[str], env: Mapping[str, str], cwd: Path) -> ForkedProcess | None:
        """Start `ansible-playbook` in a fork. Return None if the program has to be started instead."""
        try:
            with self._lock:
                if self._playbooks is None:
                    self._playbooks = self._server(playbook_server, env, self._directory / "playbooks")
                if self._modules is None:
                    directory = self._directory / "modules"
                    self._modules = self._server(module_server, env, directory, MARK, str(directory), *_later())
            path = shutil.which(args[0], path=env["PATH"]) or args[0]
            message = {"args": [path, *args[1:]], "module_server": str(self._modules.path)}
            return self._playbooks.start(message, env, cwd)
        except OSError as error:
            self._report(str(error))
            return None

    def expect_modules(self) -> None:
        """Start the server for modules, because a play has reached a task. Modules wait for the start."""
        try:
            if self._modules is not None:
                self._modules.launch()
        except OSError as error:
            self._report(str(error))

    @property
    def has_lost_modules(self) -> bool:
        """Whether the server for modules was killed. The processes that the modules started may be left."""
        return self._modules is not None and self._modules.was_killed

    def close(self) -> None:
        """End the helpers."""
        for server in (self._playbooks, self._modules):
            if server is not None:
                server.close()

    def _server(self, module: ModuleType, env: Mapping[str, str], directory: Path, *args: str) -> ForkServer:
        directory.mkdir(mode=0o700)
        variables = {key: value for key, value in env.items() if key != MARK}
        if outer := environ.get(MARK):  # this process may itself belong to a step of another run
            variables[MARK] = outer
        # ansible-core creates this directory while it is imported, possibly after the end of an interrupted play.
        variables["ANSIBLE_LOCAL_TEMP"] = str(directory / "tmp")
        return ForkServer([sys.executable, str(module.__file__), *args], variables, directory)

    def _report(self, reason: str) -> None:
        if not self._was_reported:
            self._was_reported = True
            log.warning(_SLOW, reason)


def _later() -> list[str]:
    """Return the modules to import later: they import the client libraries that the modules of features use."""
    return [str(places.module_name(folder / "_entry.py")) for folder in places.homes("library") if folder.is_dir()]


_current: ContextValue[AnsibleServers] = ContextValue("warm_ansible")
current = _current.get


@contextmanager
def opened(*, enabled: bool = True) -> Iterator[None]:
    """Make the helpers available to the toolbox commands in the body."""
    if not enabled or environ.get(SWITCH) == "0" or sys.platform != "linux":
        yield
        return
    with ExitStack() as stack:
        try:
            helpers = AnsibleServers(stack.enter_context(scratch.directory()))
        except OSError as error:
            log.warning(_SLOW, error)
        else:
            stack.callback(helpers.close)
            stack.enter_context(_current.entered_by_process(helpers))
        yield
