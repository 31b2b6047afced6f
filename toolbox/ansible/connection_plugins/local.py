"""The connection plugin `local` of ansible-core, with which modules are executed in forks of a running interpreter.

Ansible finds this plugin under the name `local`, so that no variable of a role changes. Everything that is not a Python
module of the same interpreter, without `become` and `environment`, goes to the plugin of ansible-core.
"""

from __future__ import annotations

from toolbox.ansible import core_plugins, warm_modules

_CORE = core_plugins.connection_plugin("local")
DOCUMENTATION = _CORE.DOCUMENTATION  # Ansible reads the options of the plugin from it


class Connection(_CORE.Connection):  # type: ignore[misc,name-defined]  # known at run time
    """A connection to this machine."""

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:
        """Execute a command, and return its exit status, its output and its errors."""
        ordinary = super().exec_command
        if in_data and not (sudoable and self.become):
            ended = warm_modules.execute(cmd, in_data, self.cwd)
            if ended is not None:
                return ended.result(ordinary)
        result: tuple[int, bytes, bytes] = ordinary(cmd, in_data=in_data, sudoable=sudoable)
        return result
