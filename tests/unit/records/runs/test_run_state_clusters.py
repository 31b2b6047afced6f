"""The state of the clusters of a run is derived from its journal."""

from tests.fakes.history import folded
from toolbox.ground.model.clusters import Access
from toolbox.ground.model.events import ClusterChosen, JournalEvent, LeaseAwaited, LeaseLost

WAITED = LeaseAwaited("sut", "waiting for ann")
CHOSEN = ClusterChosen("sut", "a", "/k", "c")


def cluster_text(*events: JournalEvent) -> str:
    return str(folded(events).clusters["sut"])


def test_a_run_without_clusters_has_none() -> None:
    assert folded([]).clusters == {}


def test_the_reason_for_waiting_is_shown_until_a_cluster_is_chosen() -> None:
    assert cluster_text(WAITED) == "waiting for ann"
    assert cluster_text(WAITED, CHOSEN) == "a of its pool (kubeconfig /k, context c)"


def test_a_second_wait_replaces_the_chosen_cluster() -> None:
    assert cluster_text(CHOSEN, WAITED) == "waiting for ann"


def test_a_lost_lease_is_shown_until_the_cluster_is_chosen_again() -> None:
    assert cluster_text(CHOSEN, LeaseLost("sut", "lost to bob")) == "lost to bob"
    assert cluster_text(CHOSEN, LeaseLost("sut", "lost to bob"), CHOSEN) == "a of its pool (kubeconfig /k, context c)"


def test_a_chosen_cluster_can_be_accessed() -> None:
    assert CHOSEN.access == Access("/k", "c", None)
