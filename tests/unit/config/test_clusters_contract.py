"""The block `clusters` is validated, and mistakes are named."""

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


@pytest.mark.parametrize(
    "entry",
    [
        False,
        5,
        "us-west-2",
        [{"existing": {}}],
        {},
        {"is_metal": True, "compute": {"dedicated": True, "machineset": {"name": "pods", "taint": {"key": "only"}}}},
        {"type": "single", "keep": False, "name_prefix": "ci", "ocp": {"tags": {"TicketId": None}}},
        {"node-1.lab.example.com": "profile_dgx"},
        {"machines": ["a", "b"]},
        {"machineset": {"type": "g5.2xlarge"}},
        {"creates": None},
    ],
    ids=str,
)
def test_an_entry_without_known_fields_belongs_to_the_project(entry: object) -> None:
    assert kinds({"sutest": EXISTING, "cleanup_on_exit": entry}) == {"sutest": "existing"}


@pytest.mark.parametrize("name", ["region", "machineset", "machine_type", "compute", "lab", "keep", "worker"])
def test_a_cluster_keeps_the_fields_of_the_project(name: str) -> None:
    assert kinds({"sut": {**EXISTING, name: {"type": "m6i"}}}) == {"sut": "existing"}


@pytest.mark.parametrize(
    ("name", "meant"),
    [("leases", "lease"), ("comapre", "compare"), ("lesae", "lease"), ("machnie", "machine"), ("pools", "pool")],
)
def test_a_misspelled_field_of_a_cluster_is_named(name: str, meant: str) -> None:
    with pytest.raises(ValidationError, match=f"unknown field `{name}`: did you mean `{meant}`"):
        Contract.model_validate({"sut": {**EXISTING, name: {}}})


@pytest.mark.parametrize(
    "entry", [{"exsting": {}}, {"pools": [{"name": "a"}]}, {"machne": MACHINE["machine"]}], ids=str
)
def test_an_entry_with_a_misspelled_kind_is_refused(entry: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"did you mean `(existing|pool|machine)`"):
        Contract.model_validate({"sut": entry})


@pytest.mark.parametrize(
    ("cluster", "fault"),
    [
        (
            {**EXISTING, **MACHINE},
            "only one of existing, pool, create, machine is allowed, but there are existing and machine",
        ),
        ({"existing": {"kubeconifg": "x"}}, "Extra inputs are not permitted"),
        (
            {"lease": {"ttl": 5}},
            "`lease` and `compare` need one of existing, pool, create, machine",
        ),
        (
            {**CREATE, "compare": True},
            "`compare` needs a cluster that exists before and after the run, not `create`",
        ),
        ({**MACHINE, "lease": {"enabled": False}}, "a machine needs its lease"),
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
def test_a_cluster_name_that_a_cloud_would_refuse_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="use up to 19 characters of a-z, 0-9 and -"):
        Contract.model_validate({name: EXISTING})
    assert kinds({name: {"region": "x"}}) == {}, "an entry of the project may have any name"
