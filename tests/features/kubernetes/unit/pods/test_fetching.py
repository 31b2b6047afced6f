"""The files of a workload are fetched from a server that fails, refuses or stalls."""

from __future__ import annotations

import io
import tarfile
import time
from pathlib import Path

import pytest

from tests.features.kubernetes.fakes.api_server import ApiServer, Conversation, Reply, Talk, failure, listing
from toolbox.features.kubernetes.api import access
from toolbox.features.kubernetes.api.connection import ApiError, Cluster, Unavailable
from toolbox.features.kubernetes.pods import fetching
from toolbox.features.kubernetes.pods.fetching import Selection
from toolbox.ground.model.errors import LimitExceeded
from toolbox.ground.model.workloads import CollectLimits

PODS = "/api/v1/namespaces/tests/pods"
PATH = f"{PODS}/p/exec"
OUT = 1
IMPATIENT = 0.5


@pytest.fixture(autouse=True)
def _without_long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "_PAUSE", 0.05)


def archive() -> bytes:
    """Return an archive with one file."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as whole:
        member = tarfile.TarInfo("files/it")
        member.size = 4
        whole.addfile(member, io.BytesIO(b"left"))
    return content.getvalue()


def send(talk: Conversation) -> None:
    """Send an archive as the agent does: each piece on request, and an empty piece at the end."""
    for piece in (archive(), b""):
        talk.hear()
        talk.send(OUT, b"%08d" % len(piece) + piece)
    talk.end()


def break_off(talk: Conversation) -> None:
    """Send the beginning of an archive, and end."""
    talk.hear()
    talk.send(OUT, b"%08d" % 999 + archive()[:300])


def break_off_late(talk: Conversation) -> None:
    """Send the beginning of an archive after the timeout has passed."""
    talk.hear()
    time.sleep(1.2 * IMPATIENT)
    talk.send(OUT, b"%08d" % 300 + archive()[:300])
    talk.hear()


def fetched(server: ApiServer, cluster: Cluster, directory: Path, *answers: Reply, timeout: float = 20) -> str:
    """Fetch the files with these answers of the server, and return the content of the file."""
    server.answers("GET", PATH, *answers)
    fetching.fetch(cluster, "p", "python3", "/topgallant/a", Selection(("**",), (), directory), timeout)
    assert [path.name for path in directory.iterdir() if path.name.startswith(".")] == []
    return (directory / "files/it").read_text()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    found = tmp_path / "attempt"
    found.mkdir()
    return found


@pytest.mark.parametrize("trouble", [failure(500), failure(503), failure(429), Talk(break_off)])
def test_an_incomplete_archive_is_fetched_again(
    server: ApiServer, cluster: Cluster, directory: Path, trouble: Reply
) -> None:
    assert fetched(server, cluster, directory, trouble, trouble, Talk(send)) == "left"


def test_progress_extends_the_timeout(server: ApiServer, cluster: Cluster, directory: Path) -> None:
    answers = (Talk(break_off_late), failure(503), Talk(break_off_late), Talk(send))
    assert fetched(server, cluster, directory, *answers, timeout=IMPATIENT) == "left"


def test_requests_without_progress_are_repeated_until_the_timeout(
    server: ApiServer, cluster: Cluster, directory: Path
) -> None:
    began = time.monotonic()
    with pytest.raises(Unavailable, match="sut: "):
        fetched(server, cluster, directory, failure(503), timeout=IMPATIENT)
    assert IMPATIENT <= time.monotonic() - began < 10
    assert server.count("GET", PATH) > 1


def test_a_repeated_request_uses_the_renewed_token(
    server: ApiServer, cluster: Cluster, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "_RELOAD_SECONDS", 0.0)
    server.admit("second")
    assert fetched(server, cluster, directory, failure(401), Talk(send)) == "left"
    assert [each.headers.get("authorization") for each in server.requests] == ["Bearer first", "Bearer second"]


def test_a_request_is_repeated_if_the_node_does_not_know_the_pod_yet(
    server: ApiServer, cluster: Cluster, directory: Path
) -> None:
    server.answers("GET", PODS, listing(1, "p"))
    assert fetched(server, cluster, directory, failure(404, "pod does not exist"), Talk(send)) == "left"


@pytest.mark.parametrize("status", [400, 403, 404])
def test_a_refused_request_is_not_repeated(server: ApiServer, cluster: Cluster, directory: Path, status: int) -> None:
    server.answers("GET", PODS, listing(1))
    with pytest.raises(ApiError, match="sut: no such container"):
        fetched(server, cluster, directory, failure(status, "no such container"))
    assert server.count("GET", PATH) == 1
    assert list(directory.iterdir()) == []


def test_an_endless_archive_is_cut_off_and_its_complete_files_are_kept(
    server: ApiServer, cluster: Cluster, directory: Path
) -> None:
    def send_on(talk: Conversation) -> None:
        content = archive()[:1024]
        while talk.hear():
            talk.send(OUT, b"%08d" % len(content) + content)

    server.answers("GET", PATH, Talk(send_on))
    limits = CollectLimits(bytes=1000, files=1)
    with pytest.raises(LimitExceeded, match=r"`collect_bytes` and `collect_files` of the target"):
        fetching.fetch(cluster, "p", "python3", "/topgallant/a", Selection(("**",), (), directory, limits), 20)
    assert (directory / "files/it").read_text() == "left"


def test_a_piece_that_is_longer_than_the_agents_limit_is_not_read(
    server: ApiServer, cluster: Cluster, directory: Path
) -> None:
    def announce(talk: Conversation) -> None:
        talk.hear()
        talk.send(OUT, b"99999999")
        talk.hear()

    with pytest.raises(Unavailable, match="it is not the agent that sends the archive"):
        fetched(server, cluster, directory, Talk(announce), timeout=IMPATIENT)
