"""Extensions must implement the members of their protocols."""

from typing import Any, cast

import pytest

from toolbox.ground.extensions import loading, protocols
from toolbox.ground.extensions.protocols import (
    Backend,
    HistoryCheck,
    MachineTarget,
    MetricCheck,
    RelationCheck,
    SelectiveTarget,
    VerifiableTarget,
)
from toolbox.judges.checks import exit_status, metric, relation
from toolbox.testing import Workspace


def test_the_members_of_a_kind_are_those_of_its_protocol() -> None:
    assert protocols.CHECKS.members == ["judge"]
    assert protocols.METRICS.members == ["read"]
    assert sorted(protocols.BACKENDS.members) == ["keeps_attempts", "open"]


def test_a_check_implements_the_protocols_of_its_fields() -> None:
    by_bounds, compared = (
        metric.Check(metric="time", bounds="auto"),
        relation.Check(metric="time", to={"a": 1}, lower=1),
    )
    assert isinstance(by_bounds, HistoryCheck)
    assert not isinstance(by_bounds, RelationCheck)
    assert isinstance(compared, MetricCheck)
    assert isinstance(compared, RelationCheck)
    assert not isinstance(compared, HistoryCheck)
    assert not isinstance(exit_status.Check(), MetricCheck)


def test_a_target_implements_only_what_applies_to_it() -> None:
    kinds = (MachineTarget, SelectiveTarget, VerifiableTarget)
    targets = {name: loading.load(protocols.BACKENDS, name)() for name in ("local", "ssh")}
    found = {name: [isinstance(target, kind) for kind in kinds] for name, target in targets.items()}
    assert found == {"local": [True, False, False], "ssh": [True, False, False]}


def test_an_extension_that_lacks_a_member_is_refused(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace.write({"checks/mute.py": "from pydantic import BaseModel\n\n\nclass Check(BaseModel):\n    pass\n"})
    monkeypatch.setenv("TOPGALLANT_WORKSPACE", str(workspace.directory))
    with pytest.raises(ValueError, match=r"checks/mute\.py: `Check` has no `judge`$"):
        loading.load(protocols.CHECKS, "mute")


class _Wrapped:
    def teardown_run(self) -> None:
        """Remove the resources of a run."""


class _Wrapper:
    """A backend that delegates unknown attributes to another backend, like the example in docs/extending.md."""

    def __init__(self, machine: object) -> None:
        self._machine = machine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machine, name)


def test_a_backend_that_wraps_an_owning_backend_can_tear_down_the_run() -> None:
    wrapped = _Wrapped()
    assert protocols.teardown_of(cast("Backend", _Wrapper(wrapped))) == wrapped.teardown_run
    assert protocols.teardown_of(cast("Backend", _Wrapper(object()))) is None
