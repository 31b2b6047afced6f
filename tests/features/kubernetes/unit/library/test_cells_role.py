"""The Role that `cluster prepare_namespace` creates grants exactly the documented permissions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from toolbox.features.kubernetes.api.permissions import Permission
from toolbox.features.kubernetes.backends.kubernetes import HOST_PERMISSIONS, REQUIRED_PERMISSIONS, SLICE_PERMISSIONS
from toolbox.ground.system import places

ROOT = Path(__file__).parents[5]
ROLE = ROOT / "toolbox/features/kubernetes/roles/cluster_prepare_namespace"


def rights(rules: list[dict[str, Any]]) -> set[Permission]:
    return {
        Permission(verb, resource, group)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def documented() -> set[Permission]:
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    block = re.search(r"```yaml\n(apiVersion: rbac.*?)```", page, re.DOTALL)
    assert block is not None
    return rights(next(yaml.safe_load_all(block[1]))["rules"])


def test_the_role_for_cells_is_the_documented_role() -> None:
    file = places.find("roles", "cluster_prepare_namespace", "files", "cells.yaml")
    assert file is not None
    granted = rights(yaml.safe_load(file.read_text())["rules"])
    assert granted == documented() == set(REQUIRED_PERMISSIONS)


def test_cells_with_several_hosts_or_slices_add_only_the_permissions_that_they_need() -> None:
    more = yaml.safe_load((ROLE / "vars" / "main.yml").read_text())["_cluster_prepare_namespace_more_rules"]
    assert rights([more["hosts"]]) == set(HOST_PERMISSIONS)
    assert rights([more["slices"]]) == set(SLICE_PERMISSIONS)
    assert {permission.resource for permission in rights([more["leases"]])} == {"leases"}
