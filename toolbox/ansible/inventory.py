"""Builds the Ansible inventory of a play, and names its hosts.

The name of a host is also the name of its folder in the artifacts of a step.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

from toolbox.ansible.unsafe_yaml import untrusted
from toolbox.ground.model.addresses import Address
from toolbox.ground.model.errors import UsageError
from toolbox.ground.system import environ

TARGETS: Final = "targets"
_CONTROLLER: Final = "controller"
# An SSH host must not have these names: `localhost` is this machine, and the remaining names are groups of hosts.
_RESERVED: Final = {"localhost", "all", "ungrouped", TARGETS, _CONTROLLER}


def build(addresses: Sequence[Address]) -> dict[str, Any]:
    """Return the inventory of SSH hosts. Without addresses, the inventory contains only this machine.

    Raises:
        UsageError: a host is named twice, with different users.
    """
    # Tasks that a role delegates to localhost must run without SSH, so `localhost` is always in the inventory.
    local = {"localhost": {"ansible_connection": "local", "ansible_python_interpreter": untrusted(sys.executable)}}
    hosts: dict[str, dict[str, Any]] = {}
    for address in addresses:
        name, variables = name_of(address), _variables(address)
        if hosts.setdefault(name, variables) != variables:
            listed = ", ".join(map(str, addresses))
            raise UsageError(f"--hosts: {name} is named twice, with different users: {listed}")
    groups = {TARGETS: {"hosts": hosts or local}, _CONTROLLER: {"hosts": local}}
    return {"all": {"children": groups}}


def name_of(address: Address) -> str:
    """Return the name of a host in the inventory: its address, and its port if the user gave a port.

    Several tunnels may have the same address and different ports.
    """
    host, port = address.host, address.port
    return f"{host}-{port or 'ssh'}" if port or host.lower() in _RESERVED else host


def _variables(address: Address) -> dict[str, Any]:
    variables = {
        "ansible_host": address.host,
        "ansible_user": address.user,
        "ansible_port": address.port,
        # Ansible runs its modules with this interpreter, and our roles run Python programs with it.
        "ansible_python_interpreter": environ.get("ANSIBLE_PYTHON_INTERPRETER"),
    }
    return {key: untrusted(value) for key, value in variables.items() if value}
