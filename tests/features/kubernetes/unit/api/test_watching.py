"""The official client watches objects on a fake API server."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Queue

import pytest

from tests.features.kubernetes.fakes.api_server import BREAK, HOLD, Answer, ApiServer, event, failure, listing
from toolbox.features.kubernetes.api import connection, watching
from toolbox.features.kubernetes.api.connection import ApiError, Cluster, Json, Unavailable
from toolbox.features.kubernetes.api.objects import CONFIG_MAP, Query
from toolbox.features.kubernetes.api.watching import Watch
from toolbox.ground.model.clusters import Access

PATH = "/api/v1/namespaces/tests/configmaps"
SELECTED = Query(CONFIG_MAP, "tests", "a=b")


class Ear:
    """An event handler that records all events."""

    def __init__(self) -> None:
        self.heard: Queue[tuple[str, ...]] = Queue()

    def listed(self, objects: Iterator[Json]) -> None:
        self.heard.put(("listed", *(found["metadata"]["name"] for found in objects)))

    def changed(self, kind: str, found: Json) -> None:
        self.heard.put((kind, found["metadata"]["name"]))

    def unreachable(self, seconds: float, reason: str) -> None:
        assert seconds >= 0
        self.heard.put(("away", reason))

    def next(self) -> tuple[str, ...]:
        return self.heard.get(timeout=20)


@pytest.fixture(autouse=True)
def _without_long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (connection, watching):
        monkeypatch.setattr(module, "_FIRST_PAUSE", 0.02)


@contextmanager
def watched(server: ApiServer, ear: Ear | None = None) -> Iterator[Ear]:
    cluster, ear = Cluster(Access(str(server.kubeconfig)), label="sut"), ear or Ear()
    watch = Watch(cluster, SELECTED, ear)
    try:
        watch.start(5)
        yield ear
    finally:
        watch.close()
        cluster.close()


def parameters(server: ApiServer, method: str, parameter: str) -> list[str | None]:
    """Return the values of a parameter in the requests of a method."""
    return [each.get(parameter) for each in server.requests if each.method == method]


def test_the_pages_of_a_list_are_joined(server: ApiServer) -> None:
    server.answers("GET", PATH, listing(4, "a", "b", more="page-2"), listing(5, "c"))
    server.answers("WATCH", PATH, Answer([HOLD]))
    with watched(server) as ear:
        assert ear.next() == ("listed", "a", "b", "c")
    assert parameters(server, "GET", "continue") == [None, "page-2"]
    assert {each.get("labelSelector") for each in server.requests} == {"a=b"}


def test_changes_are_passed_on_as_they_arrive(server: ApiServer) -> None:
    may_continue = threading.Event()

    def happens() -> Iterator[bytes]:
        added = event("ADDED", 6, "b")
        yield added[:9]  # a line may arrive in pieces
        yield added[9:] + event("MODIFIED", 7, "b")
        assert may_continue.wait(20)
        yield event("DELETED", 8, "b")
        yield HOLD

    server.answers("GET", PATH, listing(5))
    server.answers("WATCH", PATH, Answer(happens()))
    with watched(server) as ear:
        assert [ear.next() for _ in range(3)] == [("listed",), ("ADDED", "b"), ("MODIFIED", "b")]
        may_continue.set()
        assert ear.next() == ("DELETED", "b")
    assert parameters(server, "WATCH", "resourceVersion") == ["5"]


def test_a_watch_continues_at_its_last_version_after_a_lost_connection(server: ApiServer) -> None:
    server.answers("GET", PATH, listing(5))
    server.answers("WATCH", PATH, Answer([event("ADDED", 7), BREAK]), Answer([event("ADDED", 8, "b"), HOLD]))
    with watched(server) as ear:
        assert [ear.next()[0] for _ in range(4)] == ["listed", "ADDED", "away", "ADDED"]
    assert parameters(server, "WATCH", "resourceVersion") == ["5", "7"]
    assert server.count("GET", PATH) == 1


def test_a_bookmark_changes_only_the_version_of_the_watch(server: ApiServer) -> None:
    server.answers("GET", PATH, listing(5))
    server.answers("WATCH", PATH, Answer([event("BOOKMARK", 9)]), Answer([event("ADDED", 10), HOLD]))
    with watched(server) as ear:
        assert [ear.next(), ear.next()] == [("listed",), ("ADDED", "a")]
    assert parameters(server, "WATCH", "resourceVersion") == ["5", "9"]


def test_a_regular_end_of_a_watch_is_not_reported(server: ApiServer) -> None:
    server.answers("GET", PATH, listing(5))
    server.answers("WATCH", PATH, Answer([]), Answer([]), Answer([event("ADDED", 6), HOLD]))
    with watched(server) as ear:
        assert [ear.next(), ear.next()] == [("listed",), ("ADDED", "a")]
    assert server.count("GET", PATH) == 1


@pytest.mark.parametrize(
    "too_old",
    [
        failure(410, "too old resource version"),
        Answer([b'{"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}\n']),
    ],
)
def test_an_expired_version_is_listed_again(server: ApiServer, too_old: Answer) -> None:
    server.answers("GET", PATH, listing(5, "a", "gone"), listing(90, "a"))
    server.answers("WATCH", PATH, too_old, Answer([event("ADDED", 91, "b"), HOLD]))
    with watched(server) as ear:
        assert [ear.next() for _ in range(3)] == [("listed", "a", "gone"), ("listed", "a"), ("ADDED", "b")]
    assert parameters(server, "WATCH", "resourceVersion") == ["5", "90"]


def test_repeated_expiry_of_versions_is_retried_with_pauses(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_FIRST_PAUSE", 0.2)
    server.answers("GET", PATH, listing(5))
    server.answers("WATCH", PATH, failure(410))
    with watched(server):
        time.sleep(1)
    assert server.count("WATCH", PATH) < 20


def test_the_handler_learns_that_the_server_is_unreachable_and_why(server: ApiServer) -> None:
    server.answers("GET", PATH, listing(5))
    server.answers("WATCH", PATH, failure(403, "not any more"), failure(503, "busy"), Answer([event("ADDED", 6), HOLD]))
    with watched(server) as ear:
        changes = [ear.next() for _ in range(4)]
    away = ("away", "sut: the API server does not answer: busy")
    assert changes == [("listed",), ("away", "sut: not any more"), away, ("ADDED", "a")]


def test_a_malformed_line_is_a_broken_connection(server: ApiServer) -> None:
    server.answers("GET", PATH, listing(5))
    server.answers("WATCH", PATH, Answer([b"<html>\n"]), Answer([event("ADDED", 6), HOLD]))
    with watched(server) as ear:
        assert [ear.next()[0] for _ in range(3)] == ["listed", "away", "ADDED"]


def test_after_an_error_of_the_handler_the_objects_are_listed_again(server: ApiServer) -> None:
    class Failing(Ear):
        def changed(self, kind: str, found: Json) -> None:
            super().changed(kind, found)
            if self.heard.qsize() < 3:
                raise LookupError("no such thing")

    server.answers("GET", PATH, listing(5))
    server.answers("WATCH", PATH, Answer([event("ADDED", 6), HOLD]))
    with watched(server, Failing()) as ear:
        kinds = [ear.next()[0] for _ in range(5)]
    assert kinds == ["listed", "ADDED", "away", "listed", "ADDED"]


def test_a_watch_that_is_closed_ends_at_once(server: ApiServer) -> None:
    server.answers("GET", PATH, listing(5))
    server.answers("WATCH", PATH, Answer([event("ADDED", 6), HOLD]))
    with watched(server) as ear:
        assert [ear.next(), ear.next()] == [("listed",), ("ADDED", "a")]
        began = time.monotonic()
    assert time.monotonic() - began < 20
    assert not [thread for thread in threading.enumerate() if thread.name == "watch-sut"]
    assert ear.heard.empty()  # closing is not reported


def test_start_fails_if_the_objects_cannot_be_listed(server: ApiServer) -> None:
    server.answers("GET", PATH, failure(403, "may not list"))
    with pytest.raises(ApiError, match="sut: may not list"), watched(server):
        pass
    server.answers("GET", PATH, failure(503, Retry_After="60"))
    with pytest.raises(Unavailable), watched(server):
        pass


def test_a_list_that_expires_between_its_pages_is_requested_again(server: ApiServer) -> None:
    server.answers("GET", PATH, listing(4, "a", more="page-2"), failure(410), listing(9, "b"))
    server.answers("WATCH", PATH, Answer([HOLD]))
    with watched(server):
        assert parameters(server, "GET", "continue") == [None, "page-2", None]


def test_the_outage_of_a_quiet_watch_begins_when_its_connection_breaks(server: ApiServer) -> None:
    def quiet() -> Iterator[bytes]:
        yield event("ADDED", 6)
        time.sleep(2)
        yield BREAK

    class Clock(Ear):
        def unreachable(self, seconds: float, reason: str) -> None:
            super().unreachable(seconds, f"{reason.partition(':')[0]}: {seconds:.0f}")

    server.answers("GET", PATH, listing(5))
    server.answers("WATCH", PATH, Answer(quiet()), Answer([HOLD]))
    with watched(server, Clock()) as ear:
        assert [ear.next() for _ in range(3)] == [("listed",), ("ADDED", "a"), ("away", "sut: 0")]


def test_a_silent_watch_is_replaced_by_a_new_request(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_STREAM_TIMEOUTS", (5.0, 0.2))
    server.answers("GET", PATH, listing(1))
    server.answers("WATCH", PATH, Answer([HOLD]), Answer([event("ADDED", 2, "b"), HOLD]))
    with watched(server) as ear:
        assert [ear.next(), ear.next()] == [("listed",), ("ADDED", "b")]  # no outage is reported


def test_a_watch_that_gathers_events_can_be_closed(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_PAUSE_SECONDS", -1.0)
    monkeypatch.setattr(watching, "_GATHER_SECONDS", 1000.0)
    server.answers("GET", PATH, listing(4))
    server.answers("WATCH", PATH, Answer([event("ADDED", 5, "a"), event("ADDED", 6, "b"), HOLD]))
    with watched(server) as ear:
        assert ear.next() == ("listed",)
        assert ear.next() == ("ADDED", "a")
    assert [thread for thread in threading.enumerate() if thread.name == "watch-sut"] == []


MANAGER = {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}
MANAGED = [
    {**MANAGER, "fieldsV1": {"f:status": {"f:conditions": {'k:{"type":"Ready"}': {".": {}, "f:type": {}}}}}},
    {**MANAGER, "fieldsV1": {"f:metadata": {"f:finalizers": {".": {}, 'v:"a"': {}}}}, "subresource": "status"},
]


def line_of(metadata: Json) -> bytes:
    obj = {"kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "a"}]}, "status": {}}
    return json.dumps({"type": "ADDED", "object": obj}, separators=(",", ":")).encode()


@pytest.mark.parametrize("is_sorted", [False, True])
def test_an_event_has_no_managed_fields(is_sorted: bool) -> None:
    metadata = {"name": "x", "uid": "1", "ownerReferences": [{"name": "o"}], "managedFields": MANAGED}
    ordered = dict(sorted(metadata.items())) if is_sorted else metadata
    assert watching.parsed(line_of(ordered)) == json.loads(line_of({**ordered, "managedFields": []}))


HOSTILE = ['}]},"spec":{"containers":[', "}]}", "}],", '}],"', '}],"a":[{"', '"managedFields":[{}]', "\\}]", "}]\u0000"]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("key", ["manager", "subresource"])
def test_texts_in_managed_fields_change_nothing_else(key: str, text: str) -> None:
    others = {"name": text, "annotations": {text: text}}
    found = watching.parsed(line_of({**others, "managedFields": [{**MANAGED[0], key: text}, {"manager": text}]}))
    assert found["object"]["metadata"].pop("managedFields") is not None
    assert found == json.loads(line_of(others))


@pytest.mark.parametrize("text", HOSTILE)
def test_texts_elsewhere_are_not_mistaken_for_managed_fields(text: str) -> None:
    line = line_of({"name": "x", "annotations": {"a": f'"managedFields":[{{{text}'}, "managedFields": []})
    assert watching.parsed(line) == json.loads(line)


def test_a_line_that_is_not_json_is_refused() -> None:
    with pytest.raises(ValueError, match="unexpected"):
        watching.parsed(b'{"object":{"metadata":{"managedFields":[{"manager":"a"}]')
