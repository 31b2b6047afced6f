"""The clusters of a run, from its journal."""

from tests.fakes.history import folded
from toolbox.model.clusters import Access
from toolbox.model.events import (
    ClusterChosen,
    JournalEvent,
    LeaseAwaited,
    LeaseLost,
    ResourceMade,
    ResourcePlanned,
    ResourceRemoved,
)

WAITED = LeaseAwaited("sut", "waiting for ann")
CHOSEN = ClusterChosen("sut", "a", "/k", "c")
PLANNED = ResourcePlanned("000__create", "sut-1", "sut", "/k", "env X=1 remove it")


def said(*events: JournalEvent) -> str:
    return str(folded(events).clusters["sut"])


def test_a_run_without_clusters_has_none() -> None:
    assert folded([]).clusters == {}


def test_it_is_said_for_whom_a_run_waits_until_it_waits_no_more() -> None:
    assert said(WAITED) == "waiting for ann"
    assert said(WAITED, CHOSEN) == "a of its pool (kubeconfig /k, context c)"


def test_a_run_that_waits_again_is_waiting() -> None:
    assert said(CHOSEN, WAITED) == "waiting for ann"


def test_a_loss_is_said_until_the_cluster_is_had_again() -> None:
    assert said(CHOSEN, LeaseLost("sut", "lost to bob")) == "lost to bob"
    assert said(CHOSEN, LeaseLost("sut", "lost to bob"), CHOSEN) == "a of its pool (kubeconfig /k, context c)"


def test_what_is_there_is_said_with_the_way_to_it_and_to_its_end() -> None:
    assert said(PLANNED) == "sut-1 (not completely created); to remove it: env X=1 remove it"
    assert said(PLANNED, ResourceMade("sut-1"), ClusterChosen("sut", kubeconfig="/k")) == (
        "sut-1 (export KUBECONFIG=/k); to remove it: env X=1 remove it"
    )


def test_what_was_removed_is_there_no_more() -> None:
    state = folded([PLANNED, ResourceMade("sut-1"), ResourceRemoved("sut-1")]).clusters["sut"]
    assert (state.planned, state.is_made, str(state)) == (None, False, "")


def test_what_the_journal_has_lost_the_beginning_of_is_nothing() -> None:
    assert folded([ResourceMade("sut-1")]).clusters == {}


def test_what_was_chosen_can_be_reached_again() -> None:
    assert CHOSEN.access == Access("/k", "c", None)
