"""The entry point of all modules for clusters: reads the arguments, connects to the cluster, and reports errors.

The interpreter of `ansible-playbook` runs the modules. It is also the interpreter of Topgallant, so the modules may
import `toolbox`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Final

from toolbox.features.kubernetes.api.connection import Cluster
from toolbox.features.kubernetes.api.objects import Objects
from toolbox.ground.model.clusters import Access
from toolbox.ground.model.errors import ToolboxError
from toolbox.ground.model.verdicts import CAUSE_KEY

# These options say how to reach the cluster. Each task of a role passes them.
_ACCESS: Final[Mapping[str, Any]] = {
    field.name: {"type": "path" if field.name == "kubeconfig" else "str"} for field in fields(Access)
}

Work = Callable[[Objects, Mapping[str, Any]], Mapping[str, Any]]
Keep = Callable[[Mapping[str, Any]], None]


def run(
    ansible_module: Callable[..., Any], specification: Mapping[str, Any], work: Work, *, keep: Keep | None = None
) -> None:
    """Run a module.

    Args:
        ansible_module: the class `AnsibleModule`. Each module must import it, because Ansible looks for this import.
        specification: the `argument_spec` of the module, without the options for the access to the cluster.
        work: does the work of the module, and returns the module's result. If `work` raises a `ToolboxError`, the task
            fails.
        keep: called first, with the arguments of the module. It writes evidence that does not need the cluster.
    """
    module = ansible_module(argument_spec={**_ACCESS, **specification})
    params = module.params
    try:
        if keep is not None:
            keep(params)
        cluster = Cluster(Access(params["kubeconfig"] or None, params["context"] or None, params["namespace"] or None))
        result = work(Objects(cluster), params)
    except ToolboxError as error:
        module.fail_json(**{"msg": str(error), CAUSE_KEY: error.cause.value})
    module.exit_json(**result)
