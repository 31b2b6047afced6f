"""The connection plugin `ssh` of ansible-core, with which modules are executed in forks of a running interpreter.

Ansible finds this plugin under the name `ssh`, so that no variable of a role changes. The plugin of ansible-core
executes the first command on each host, everything on a host with a password, modules with `become` or `environment`,
and everything that is not a Python module.
"""

from __future__ import annotations

import re
from typing import Any

from ansible.errors import AnsibleConnectionFailure

from toolbox.ansible import core_plugins, ssh_links
from toolbox.ansible.warm_modules import Ended

_CORE = core_plugins.connection_plugin("ssh")
DOCUMENTATION = _CORE.DOCUMENTATION  # Ansible reads the options of the plugin from it
_LOST_STATUS = 255  # of `ssh`


def __getattr__(name: str) -> Any:
    """Return another name of the module of ansible-core, which other plugins may import from this one."""
    return getattr(_CORE, name)


class Connection(_CORE.Connection):  # type: ignore[misc,name-defined]  # known at run time
    """A connection to an SSH host."""

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:
        """Execute a command, and return its exit status, its output and its errors."""
        links, ssh = ssh_links.current.get(), self._command_line()
        if links is not None and ssh is not None and in_data and not (sudoable and self.become):
            ended = links.execute(cmd, in_data, ssh)
            if ended is not None:
                return self._result(ended, cmd, in_data)
        result: tuple[int, bytes, bytes] = super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        if links is not None and ssh is not None and result[0] != _LOST_STATUS:
            links.allow(ssh)
        return result

    def reset(self) -> None:
        """End the connection. The next command starts a new session on the host."""
        links, ssh = ssh_links.current.get(), self._command_line()
        if links is not None and ssh is not None:
            links.end(ssh)
        super().reset()

    def _command_line(self) -> list[bytes] | None:
        """Return the command line that connects to the host, without a remote command; None for the ordinary way."""
        try:
            if self.get_option("password") or self._play_context.password:
                return None
            self.host = self.get_option("host") or self._play_context.remote_addr
            command: list[bytes] = self._build_command(self.get_option("ssh_executable"), "ssh", self.host)
        except Exception:  # noqa: BLE001  # the ordinary way reports errors; a later ansible-core may be different
            return None
        # Before ansible-core 2.19, `-v` of `ansible-playbook` lets `ssh` print what it does.
        return [word for word in command if not re.fullmatch(b"-v+", word)]

    def _result(self, ended: Ended, cmd: str, in_data: bytes) -> tuple[int, bytes, bytes]:
        def ordinary(cmd: str, in_data: bytes | None = None) -> tuple[int, bytes, bytes]:
            result: tuple[int, bytes, bytes] = super(Connection, self).exec_command(cmd, in_data, sudoable=False)
            return result

        if ended.lost is not None:
            if int(self.get_option("reconnection_retries")) > 0:  # the user wants that Ansible executes modules again
                return ordinary(cmd, in_data)
            reason = ended.lost or "the program for modules on the host has ended"
            raise AnsibleConnectionFailure(
                f'The connection to "{self.host}" was lost while a module was running: {reason}'
            )
        if ended.exit_code == _LOST_STATUS:
            # ansible-core cannot tell this exit status from the end of a connection, and raises its own exception.
            return ordinary(f"/bin/sh -c 'head -c {len(ended.stderr)} >&2; exit {_LOST_STATUS}'", ended.stderr + b"\n")
        return ended.result(ordinary)
