"""Users see the reason why an attempt has not started."""

from __future__ import annotations

import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from tests.features.kubernetes.servers import kubernetes
from toolbox.features.kubernetes.api.connection import Cluster
from toolbox.features.kubernetes.pods import unready
from toolbox.features.kubernetes.pods.object_store import Store
from toolbox.features.kubernetes.pods.pod_state import Ended, JobView, PodView
from toolbox.ground.model.clusters import Access

JOB = JobView("j", "u")
NEW = PodView("p", "u", "j")
TAKEN = PodView("p", "u", "j", node="n1")
PULLING = PodView("p", "u", "j", node="n1", waiting=("ImagePullBackOff", "Back-off pulling image x:1"))
UNSCHEDULABLE = PodView("p", "u", "j", unschedulable="0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")


@pytest.mark.parametrize(
    ("job", "pods", "reason"),
    [
        (JobView("j", "u", is_suspended=True), [], "waiting in the queue gpus"),
        (JOB, [], "waiting for its pod"),
        (None, [], "waiting for its pod"),
        (JOB, [NEW], "waiting for a node: the scheduler has not decided yet"),
        (JOB, [UNSCHEDULABLE], "waiting for a node: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu."),
        (JOB, [TAKEN], "starting on n1"),
        (JOB, [PULLING], "starting on n1: ImagePullBackOff: Back-off pulling image x:1"),
    ],
)
def test_the_reason_names_what_an_attempt_waits_for(job: JobView | None, pods: list[PodView], reason: str) -> None:
    assert unready.reason(job, pods, queue="gpus") == reason


def test_an_event_completes_the_reason() -> None:
    quota = {"j": "Error creating: pods is forbidden: exceeded quota"}
    assert unready.reason(JOB, [], events=quota).endswith(
        "waiting for its pod: Error creating: pods is forbidden: exceeded quota"
    )
    creating = PodView("p", "u", "j", node="n1", waiting=("ContainerCreating", ""))
    pulling = {"p": 'Pulling image "x:1"'}
    assert unready.reason(JOB, [creating], events=pulling) == 'starting on n1: Pulling image "x:1"'


def test_the_reason_is_that_of_the_pod_that_has_not_started() -> None:
    running = PodView("a", "u", "j", node="n1", is_running=True)
    ended = PodView("b", "u", "j", node="n1", ended=Ended(0, "Completed", "", None))
    assert unready.reason(JOB, [running, ended, UNSCHEDULABLE]).startswith("waiting for a node: 0/3")
    assert unready.reason(JOB, [running, ended]) == ""


@pytest.mark.parametrize(
    ("job", "pods", "needed"),
    [
        (JobView("j", "u", is_suspended=True), [], False),
        (JOB, [], True),
        (JOB, [TAKEN], True),
        (JOB, [PULLING], False),
        (JOB, [UNSCHEDULABLE], False),
    ],
)
def test_events_are_needed_only_if_the_objects_do_not_give_the_reason(
    job: JobView, pods: list[PodView], needed: bool
) -> None:
    assert unready.needs_events(job, pods) is needed


def test_a_routine_event_does_not_replace_the_reason_for_a_wait() -> None:
    with (
        kubernetes.for_tests() as cluster,
        cluster.namespace() as namespace,
        closing(Cluster(Access(str(cluster.kubeconfig), namespace=namespace))) as connection,
    ):
        pod = {"kind": "Pod", "name": "p", "namespace": namespace}
        for age, (reason, message) in enumerate([("Scheduled", "Successfully assigned"), ("Pulling", "Pulling image")]):
            time = (datetime.now(UTC) - timedelta(minutes=age)).isoformat()
            event = {"metadata": {"name": reason.lower()}, "involvedObject": pod, "reason": reason, "message": message}
            cluster.core.create_namespaced_event(namespace, {**event, "lastTimestamp": time, "type": "Normal"})
        store = Store(connection, "topgallant.dev/run=x", lambda _: None, threading.RLock())
        store.see_pod(PodView("p", "u", "j", node="n1"))
        newest = unready.NewestEvents(connection, store)
        newest.fetch()
    assert newest.by_object == {"p": "Pulling image"}
