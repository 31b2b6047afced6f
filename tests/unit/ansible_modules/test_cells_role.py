"""The Role that `cluster prepare_namespace` gives an account is enough for cells."""

from __future__ import annotations

import yaml

from toolbox.backends.kubernetes import NEEDS
from toolbox.system import places


def test_an_account_that_may_run_cells_may_do_all_that_they_need() -> None:
    file = places.find("roles", "cluster_prepare_namespace", "files", "cells.yaml")
    assert file is not None
    rules = yaml.safe_load(file.read_text())["rules"]
    allowed = {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert [need for need in NEEDS if (need.group, need.resource, need.verb) not in allowed] == []
    assert "*" not in {part for rule in allowed for part in rule}
