"""The connection plugin `local` of ansible-core, with which modules are executed in forks of a running interpreter.

Ansible finds this plugin under the name `local`, so that no variable of a role changes. The plugin of ansible-core
executes modules of another interpreter, modules with `become` or `environment`, and everything that is not a Python
module.
"""

from __future__ import annotations

from typing import Any

from toolbox.ansible import core_plugins, warm_modules

_CORE = core_plugins.connection_plugin("local")
DOCUMENTATION = _CORE.DOCUMENTATION  # Ansible reads the options of the plugin from it


def __getattr__(name: str) -> Any:
    """Return another name of the module of ansible-core, which other plugins may import from this one."""
    return getattr(_CORE, name)


class Connection(_CORE.Connection):  # type: ignore[misc,name-defined]  # known at run time
    """A connection to this machine."""

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:
        """Execute a command, and return its exit status, its output and its errors."""
        ordinary = super().exec_command
        if in_data and not (sudoable and self.become):
            ended = warm_modules.execute(cmd, in_data, self.cwd, ordinary)
            if ended is not None:
                return ended.result(ordinary)
        result: tuple[int, bytes, bytes] = ordinary(cmd, in_data=in_data, sudoable=sudoable)
        return result
