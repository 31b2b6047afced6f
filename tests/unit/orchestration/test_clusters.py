"""An orchestration acquires its clusters in order, and a lost lease cancels its phase."""

import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from toolbox.ground.model.clusters import Access
from toolbox.ground.model.errors import Cancelled, ConfigurationError, Interrupted, StepError
from toolbox.ground.model.events import LeaseLost
from toolbox.ground.model.verdicts import Cause
from toolbox.ground.system import cancellation
from toolbox.orchestration import clusters, session
from toolbox.orchestration.clusters import Reservation
from toolbox.records.runs.steps import Step

from .conftest import Seen, Work


def machine(file: str, **lease: Any) -> dict[str, Any]:
    return {"machine": {"lock_file": file}, "lease": {"ttl": 3, **lease}}


@pytest.fixture
def reserve(work: Work, top: Step) -> Any:
    """Yield a function that acquires the clusters of a block `clusters`."""
    reserved: list[Reservation] = []

    def begin(block: dict[str, Any]) -> Reservation:
        opened = work(yaml.safe_dump({"clusters": block}))
        reserved.append(Reservation(opened.configuration, "tiny"))
        reserved[-1].acquire(opened, top)
        return reserved[-1]

    yield begin
    for reservation in reserved:
        assert reservation.release(compare=False) == []


def lose(file: Path, seen: Seen) -> None:
    """Release a lease by force, and wait until the run has noticed the loss."""
    file.write_text("{}\n")
    deadline = time.monotonic() + 10
    while not seen.of(LeaseLost):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_run_without_clusters_acquires_nothing(reserve: Any, seen: Seen) -> None:
    assert reserve({}).is_held
    assert (seen.events, session.current().clusters) == ([], {})


def test_an_unknown_cluster_name_lists_the_known_names(work: Work) -> None:
    work("{}").clusters = {"sut": Access("/k", "c", "n"), "driver": Access()}
    with pytest.raises(ConfigurationError, match=r"this run has no cluster `sat`: did you mean sut\?"):
        clusters.access("sat")
    assert clusters.access("sut").namespace == "n"
    assert clusters.arguments("sut") == {"kubeconfig": "/k", "context": "c"}


def test_access_to_existing_clusters_is_known_before_the_run(work: Work, tmp_path: Path) -> None:
    block = {
        "a": {"existing": {"kubeconfig": "k/a"}},
        "b": {"pool": [{"name": "x"}]},
        "c": {"existing": {"context": "c"}},
        "d": {"create": {"command": "make", "destroy": "unmake"}},
        "e": machine("lock"),
        "f": None,
        "g": {"size": 3},
    }
    access = clusters.known_access(work(yaml.safe_dump({"clusters": block})).configuration)
    assert access == {"a": Access(str(tmp_path.parent / "k/a")), "b": None, "c": Access(None, "c"), "d": None}


def test_clusters_are_acquired_in_the_order_of_their_keys(reserve: Any, seen: Seen, tmp_path: Path) -> None:
    reserve({"a": machine(str(tmp_path / "2")), "b": machine(str(tmp_path / "1"))})
    assert seen.lines == ["b: the lease of b was acquired", "a: the lease of a was acquired"]


def test_a_lost_lease_cancels_the_phase_with_an_infrastructure_error(reserve: Any, seen: Seen, tmp_path: Path) -> None:
    reservation = reserve({"dgx": machine(str(tmp_path / "lock"))})
    threading.Thread(target=lose, args=(tmp_path / "lock", seen)).start()
    with (
        pytest.raises(StepError, match="the lease of dgx is lost: it was released by force") as caught,
        cancellation.opened() as scope,
        reservation.guarding(scope),
    ):
        scope.sleep(20)
    assert caught.value.cause is Cause.INFRASTRUCTURE
    assert isinstance(caught.value.__cause__, Cancelled)
    assert not reservation.is_held


def test_a_phase_that_ignores_a_lost_lease_does_not_pass(reserve: Any, seen: Seen, tmp_path: Path) -> None:
    reservation = reserve({"dgx": machine(str(tmp_path / "lock"))})
    with pytest.raises(StepError, match="is lost"), reservation.guarding(cancellation.CancelScope()):
        lose(tmp_path / "lock", seen)


def test_no_phase_starts_after_a_lost_lease(reserve: Any, seen: Seen, tmp_path: Path) -> None:
    reservation = reserve({"dgx": machine(str(tmp_path / "lock"))})
    lose(tmp_path / "lock", seen)
    begun = False
    with pytest.raises(StepError, match="is lost"), reservation.guarding(cancellation.CancelScope()):
        begun = True
    assert not begun


def test_a_signal_is_reported_even_after_a_lost_lease(reserve: Any, seen: Seen, tmp_path: Path) -> None:
    reservation = reserve({"dgx": machine(str(tmp_path / "lock"))})

    def interrupted() -> None:
        with reservation.guarding(cancellation.CancelScope()):
            lose(tmp_path / "lock", seen)
            raise Interrupted(signal.SIGINT)

    with pytest.raises(Interrupted):
        interrupted()


def test_a_failed_acquisition_releases_the_acquired_leases(reserve: Any, work: Work, top: Step, tmp_path: Path) -> None:
    reserve({"dgx": machine(str(tmp_path / "2"))})
    opened = work(
        yaml.safe_dump({"clusters": {"a": machine(str(tmp_path / "1")), "b": machine(str(tmp_path / "none/2"))}})
    )
    other = Reservation(opened.configuration, "tiny")
    with pytest.raises(StepError, match="No such file"):
        other.acquire(opened, top)
    assert not other.is_held
    other.release(compare=True)
    assert (tmp_path / "1").read_text() == "{}\n"
