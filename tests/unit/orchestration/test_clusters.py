"""How an orchestration reaches its clusters, in which order they are taken, and what a loss does to a phase."""

import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from toolbox.model.clusters import Access
from toolbox.model.errors import Cancelled, ConfigurationError, Interrupted, StepError
from toolbox.model.events import LeaseLost
from toolbox.model.verdicts import Cause
from toolbox.orchestration import clusters, session
from toolbox.orchestration.clusters import Reservation
from toolbox.runs.steps import Step
from toolbox.system import cancellation

from .conftest import Seen, Work


def machine(file: str, **lease: Any) -> dict[str, Any]:
    return {"machine": {"lock_file": file}, "lease": {"ttl": 3, **lease}}


@pytest.fixture
def reserve(work: Work, top: Step) -> Any:
    """Reserve what a block `clusters` says."""
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
    """Release a lease by force, and wait until the run knows."""
    file.write_text("{}\n")
    deadline = time.monotonic() + 10
    while not seen.of(LeaseLost):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_run_without_clusters_has_none_and_nothing_to_do(reserve: Any, seen: Seen) -> None:
    assert reserve({}).is_held
    assert (seen.events, session.current().clusters) == ([], {})


def test_an_unknown_name_is_answered_with_those_there_are(work: Work) -> None:
    work("{}").clusters = {"sut": Access("/k", "c", "n"), "driver": Access()}
    with pytest.raises(ConfigurationError, match=r"this run has no cluster `sat`: did you mean sut\?"):
        clusters.access("sat")
    assert clusters.access("sut").namespace == "n"
    assert clusters.arguments("sut") == {"kubeconfig": "/k", "context": "c"}


def test_how_the_existing_ones_are_reached_is_known_beforehand(work: Work, tmp_path: Path) -> None:
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


def test_they_are_taken_in_one_order_whatever_they_are_called(reserve: Any, seen: Seen, tmp_path: Path) -> None:
    reserve({"a": machine(str(tmp_path / "2")), "b": machine(str(tmp_path / "1"))})
    assert seen.lines == ["b: the lease of b was acquired", "a: the lease of a was acquired"]


def test_a_lease_that_is_lost_cancels_what_runs_and_is_an_error_of_the_infrastructure(
    reserve: Any, seen: Seen, tmp_path: Path
) -> None:
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


def test_what_does_not_notice_a_loss_has_not_passed_all_the_same(reserve: Any, seen: Seen, tmp_path: Path) -> None:
    reservation = reserve({"dgx": machine(str(tmp_path / "lock"))})
    with pytest.raises(StepError, match="is lost"), reservation.guarding(cancellation.CancelScope()):
        lose(tmp_path / "lock", seen)


def test_after_a_loss_nothing_begins(reserve: Any, seen: Seen, tmp_path: Path) -> None:
    reservation = reserve({"dgx": machine(str(tmp_path / "lock"))})
    lose(tmp_path / "lock", seen)
    begun = False
    with pytest.raises(StepError, match="is lost"), reservation.guarding(cancellation.CancelScope()):
        begun = True
    assert not begun


def test_a_signal_is_a_signal_also_after_a_loss(reserve: Any, seen: Seen, tmp_path: Path) -> None:
    reservation = reserve({"dgx": machine(str(tmp_path / "lock"))})

    def interrupted() -> None:
        with reservation.guarding(cancellation.CancelScope()):
            lose(tmp_path / "lock", seen)
            raise Interrupted(signal.SIGINT)

    with pytest.raises(Interrupted):
        interrupted()


def test_what_is_not_to_be_had_ends_with_nothing_held(reserve: Any, work: Work, top: Step, tmp_path: Path) -> None:
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
