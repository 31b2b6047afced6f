"""The entry point of all modules for clusters: reads the arguments, connects to the cluster, and reports errors.

A module runs with the interpreter of `ansible-playbook`, which is also that of Topgallant, so it may import `toolbox`.
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

# How to reach the cluster. Each task of a role passes these options: a task that is included elsewhere needs them too.
_ACCESS: Final[Mapping[str, Any]] = {
    field.name: {"type": "path" if field.name == "kubeconfig" else "str"} for field in fields(Access)
}

Work = Callable[[Objects, Mapping[str, Any]], Mapping[str, Any]]


def run(ansible_module: Callable[..., Any], options: Mapping[str, Any], work: Work) -> None:
    """Run a module.

    Args:
        ansible_module: Ansible's class. Each module has to import it: Ansible recognizes modules by this import.
        options: the specification of the options other than the fields of `Access`, in Ansible's form.
        work: carries out the module, and returns the result. A `ToolboxError` fails the task with its message.
    """
    module = ansible_module(argument_spec={**_ACCESS, **options})
    given = module.params
    try:
        cluster = Cluster(Access(given["kubeconfig"] or None, given["context"] or None, given["namespace"] or None))
        result = work(Objects(cluster), given)
    except ToolboxError as error:
        module.fail_json(**{"msg": str(error), CAUSE_KEY: error.cause.value})
    module.exit_json(**result)
