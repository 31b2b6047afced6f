"""The commands of `tpu` find the TPU with a name in the ledger of the user."""

from pathlib import Path

import pytest

from toolbox.features.tpu import tpu_request
from toolbox.features.tpu.named_tpu import NamedTpu
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.resources import Resource
from toolbox.records.runs import ledger

HERE, THERE = "us-central1-a", "us-west4-a"


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def plan(zone: str) -> Resource:
    """Put the TPU `x` in a zone on the ledger of the user."""
    name = f"projects/my-project/locations/{zone}/nodes/x"
    resource = tpu_request.ledger_entry(tpu_request.NODE, name, "tpu.googleapis.com", 60)
    ledger.of_user().plan(resource)
    return resource


def test_the_ledger_has_the_zone_of_a_tpu() -> None:
    plan(HERE)
    assert NamedTpu.of("x", None, None, None).location.zone == HERE


def test_a_name_in_two_zones_is_ambiguous() -> None:
    plan(HERE)
    plan(THERE)
    with pytest.raises(UsageError, match="the ledger has 2 TPUs with the name x: pass --project and --zone"):
        NamedTpu.of("x", None, None, None)
    assert NamedTpu.of("x", None, THERE, None).location.zone == THERE


def test_a_tpu_that_does_not_exist_in_the_first_zone_is_found_in_the_second() -> None:
    ledger.of_user().mark_absent(plan(HERE))
    assert NamedTpu.of("x", None, None, None).location.zone == HERE
    plan(THERE)
    assert NamedTpu.of("x", None, None, None).location.zone == THERE
