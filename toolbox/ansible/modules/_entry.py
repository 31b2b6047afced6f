"""How a module of ours begins and ends: its arguments, the cluster that they name, and one message where it fails.

A module runs with the interpreter of `ansible-playbook`, which is ours: so it may import what it needs of `toolbox`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Final

from toolbox.kubernetes.api.connection import Cluster
from toolbox.kubernetes.api.objects import Objects
from toolbox.model.clusters import Access
from toolbox.model.errors import ToolboxError
from toolbox.model.verdicts import CAUSE_KEY

# Where a module works. The play of a toolbox command sets these options for all its tasks: see `toolbox.ansible.roles`.
_ACCESS: Final[Mapping[str, Any]] = {field.name: {"type": "str"} for field in fields(Access)}

Work = Callable[[Objects, Mapping[str, Any]], Mapping[str, Any]]


def run(ansible_module: Callable[..., Any], options: Mapping[str, Any], work: Work) -> None:
    """Run a module.

    Args:
        ansible_module: Ansible's own class. Each module imports it by itself: that is how Ansible knows a module.
        options: what it takes besides the fields of `Access`, as Ansible describes it.
        work: does it, and returns its result. The errors that we foresee are the message of the failed task.
    """
    module = ansible_module(argument_spec={**_ACCESS, **options})
    given = module.params
    try:
        cluster = Cluster(Access(**{name: given[name] or None for name in _ACCESS}))
        result = work(Objects(cluster), given)
    except ToolboxError as error:
        module.fail_json(**{"msg": str(error), CAUSE_KEY: error.cause.value})
    module.exit_json(**result)
