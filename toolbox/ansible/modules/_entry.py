"""How a module of ours begins and ends: its arguments, the cluster that they name, and one message where it fails.

A module runs with the interpreter of `ansible-playbook`, which is ours: so it may import what it needs of `toolbox`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from toolbox.kubernetes.api.connection import Cluster
from toolbox.kubernetes.api.objects import Objects
from toolbox.model.clusters import Access
from toolbox.model.errors import ToolboxError
from toolbox.model.verdicts import CAUSE_KEY

# Who calls a module, and where.
_ACCESS: Mapping[str, Any] = {
    "kubeconfig": {"type": "path"},
    "context": {"type": "str"},
    "namespace": {"type": "str"},
}


Work = Callable[[Objects, Mapping[str, Any]], Mapping[str, Any]]


def run(ansible_module: Callable[..., Any], options: Mapping[str, Any], work: Work) -> None:
    """Run a module.

    Args:
        ansible_module: Ansible's own class. Each module imports it by itself: that is how Ansible knows a module.
        options: what it takes besides `kubeconfig`, `context` and `namespace`, as Ansible describes it.
        work: does it, and returns its result. The errors that we foresee are the message of the failed task.
    """
    module = ansible_module(argument_spec={**_ACCESS, **options})
    given = module.params
    try:
        cluster = Cluster(Access(given["kubeconfig"] or None, given["context"] or None, given["namespace"] or None))
        result = work(Objects(cluster), given)
    except ToolboxError as error:
        module.fail_json(**{"msg": str(error), CAUSE_KEY: error.cause.value})
    module.exit_json(**result)
