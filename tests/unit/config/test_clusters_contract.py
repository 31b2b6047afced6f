"""The block `clusters`: what it takes, and what it says to what it does not."""

from typing import Any

import pytest
from pydantic import ValidationError

from toolbox.config.contracts.clusters import Contract

EXISTING: dict[str, Any] = {"existing": {}}
CREATE = {"create": {"command": "make it", "destroy": ["unmake", "it"]}}
MACHINE = {"machine": {"lock_file": "/run/lock/dgx"}}


def kinds(block: dict[str, Any]) -> dict[str, str | None]:
    found = Contract.model_validate(block).root
    return {name: cluster.kind for name, cluster in found.items() if cluster is not None}


def test_a_cluster_is_one_of_four_kinds() -> None:
    pool = {"pool": [{"name": "a"}, {"name": "b", "context": "b"}]}
    block = {"a": EXISTING, "b": pool, "c": CREATE, "d": MACHINE, "e": None}
    assert kinds(block) == {"a": "existing", "b": "pool", "c": "create", "d": "machine"}


def test_other_fields_are_the_projects_own() -> None:
    assert kinds({"sutest": {"is_metal": True, "compute": {"machineset": {"name": "pods"}}}}) == {"sutest": None}
    assert kinds({"sut": {**EXISTING, "region": "us-west-2"}}) == {"sut": "existing"}


@pytest.mark.parametrize(
    ("cluster", "fault"),
    [
        (
            {**EXISTING, **MACHINE},
            "one of existing, pool, create, machine was expected, and there are existing and machine",
        ),
        ({"exsting": {}}, "it has a field `exsting`: is `existing` meant?"),
        ({**EXISTING, "leases": {}}, "it has a field `leases`: is `lease` meant?"),
        (
            {"lease": {"ttl": 5}},
            "it has a lease, or is compared, and one of existing, pool, create, machine is missing",
        ),
        (
            {**CREATE, "compare": True},
            "`compare` is for what is there before and after the run: this one is of `create`",
        ),
        ({**MACHINE, "lease": {"enabled": False}}, "of a machine there is nothing but its lease"),
        ({"pool": [{"name": "a"}, {"name": "a"}]}, "two clusters of the pool have the name a"),
        ({"pool": []}, "at least 1 item"),
        ({**EXISTING, "lease": {"ttl": 1}}, "greater than or equal to 3"),
        ({"existing": {"kube_config": "x"}}, "Extra inputs are not permitted"),
        ({"create": {"command": "x"}}, "Field required"),
    ],
)
def test_a_mistake_is_named(cluster: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Contract.model_validate({"sut": cluster})
    assert fault in str(caught.value)


@pytest.mark.parametrize("name", ["SUT", "my_cluster", "-a", "a-name-of-twenty-char"])
def test_a_name_that_clouds_refuse_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="up to 19 of a-z, 0-9 and - were expected"):
        Contract.model_validate({name: EXISTING})
    assert kinds({name: {"region": "x"}}) == {name: None}, "of the project's own we say nothing"
