"""Tests of the gateway to JupyterHub with a real hub: servers start, are followed, and are deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.features.notebooks.servers import jupyterhub
from tests.features.notebooks.servers.jupyterhub import Hub
from toolbox.features.notebooks.jupyterhub import (
    hub_address,
    hub_replies,
    hub_verification,
    labelled_servers,
    server_deletion,
    server_request,
    server_starts,
)
from toolbox.features.notebooks.jupyterhub.hub_api import HubAccess, HubApi
from toolbox.features.notebooks.jupyterhub.hub_errors import REQUIRED_SCOPES, HubError
from toolbox.features.notebooks.jupyterhub.server_deletion import ForeignServer
from toolbox.features.notebooks.resources import jupyterhub_server
from toolbox.ground.model.errors import ConfigurationError
from toolbox.ground.model.resources import Owner
from toolbox.ground.model.secrets import Secret
from toolbox.ground.model.verdicts import Cause

OWNER = Owner("run-1", "project", "ann", "laptop")
pytestmark = pytest.mark.live


@pytest.fixture
def hub(shared_hub: Hub) -> Iterator[Hub]:
    yield shared_hub
    shared_hub.clear()


@pytest.fixture(scope="module")
def limited() -> Iterator[Hub]:
    """A hub below a path, whose users may have one named server."""
    with jupyterhub.serving({"JupyterHub.named_server_limit_per_user": 1}, base_path="/jupyter/") as hub:
        yield hub


def connected(hub: Hub) -> HubApi:
    return HubApi(HubAccess(hub.url, Secret(hub.token)))


@pytest.fixture
def api(hub: Hub) -> Iterator[HubApi]:
    with connected(hub) as connection:
        yield connection


def start(api: HubApi, profile: str, *, seconds: float = 60.0, report: Callable[[str], None] = lambda _: None) -> None:
    options = {"profile": profile, hub_replies.LABELS: OWNER.labels(60)}
    api.run(server_starts.start(api, "ann", "tg-1", options, seconds=seconds, report=report))


def delete(api: HubApi, owner: Owner = OWNER, seconds: float = 60.0) -> bool:
    return api.run(server_deletion.delete(api, "ann", "tg-1", owner, seconds=seconds))


def test_the_scopes_of_the_documentation_are_those_of_the_tests() -> None:
    assert jupyterhub.TOKEN_SCOPES == REQUIRED_SCOPES


def test_the_token_tells_its_user(hub: Hub, api: HubApi) -> None:
    owner = api.run(api.token_owner())
    assert owner.name == hub.user
    assert f"servers!user={hub.user}" in owner.scopes


def test_the_token_of_a_service_has_no_user(hub: Hub) -> None:
    with HubApi(HubAccess(hub.url, Secret(hub.admin_token))) as api:
        assert api.run(api.token_owner()).name == ""


def test_a_start_is_followed_until_the_server_is_ready(hub: Hub, api: HubApi) -> None:
    messages: list[str] = []
    start(api, "progress", report=messages.append)
    assert messages[:4] == ["Server requested", "pulling the image", "image pulled", "starting the server"]
    assert hub.servers()["tg-1"]["ready"] is True
    assert hub.servers()["tg-1"]["user_options"]["profile"] == "progress"


def test_the_same_name_twice_is_one_server(hub: Hub, api: HubApi) -> None:
    start(api, "bare")
    started = hub.servers()["tg-1"]["started"]
    start(api, "bare")
    assert hub.servers()["tg-1"]["started"] == started


def test_a_failed_start_has_the_message_of_the_hub(hub: Hub, api: HubApi) -> None:
    with pytest.raises(HubError, match=r"the server tg-1 did not start: .*the image no-such-image cannot be pulled"):
        start(api, "fail")
    assert delete(api)
    assert hub.servers() == {}


def test_a_server_that_never_starts_is_an_error_with_the_last_message(hub: Hub, api: HubApi) -> None:
    with pytest.raises(HubError, match="is not ready after 5 s: waiting for a node") as caught:
        start(api, "slow", seconds=5.0)
    assert caught.value.cause is Cause.INFRASTRUCTURE
    assert delete(api)
    assert hub.servers() == {}


def test_a_cluster_without_room_is_a_lack_of_capacity(api: HubApi) -> None:
    with pytest.raises(HubError, match="Insufficient memory") as caught:
        start(api, "full", seconds=5.0)
    assert caught.value.cause is Cause.CAPACITY


def test_a_deletion_returns_when_the_server_does_not_exist(hub: Hub, api: HubApi) -> None:
    start(api, "bare")
    assert delete(api)
    assert hub.servers() == {}
    assert not delete(api)


def test_two_deletions_at_once_succeed(hub: Hub, api: HubApi) -> None:
    start(api, "bare")
    with ThreadPoolExecutor() as threads:
        assert any(threads.map(lambda _: delete(api), range(2)))
    assert hub.servers() == {}


def test_a_server_of_another_owner_is_not_deleted(hub: Hub, api: HubApi) -> None:
    hub.start_server("tg-1", profile="bare")
    with pytest.raises(ForeignServer):
        delete(api)
    assert list(hub.servers()) == ["tg-1"]


def test_a_token_of_another_user_does_not_count_a_server_as_deleted(hub: Hub, api: HubApi) -> None:
    start(api, "bare")
    hub.request("POST", "/users/bob")
    with (
        HubApi(HubAccess(hub.url, Secret(hub.new_token(user="bob")))) as other,
        pytest.raises(HubError, match="use a token of ann"),
    ):
        delete(other)
    assert list(hub.servers()) == ["tg-1"]


def test_the_servers_of_a_user_that_does_not_exist_are_deleted(hub: Hub) -> None:
    with HubApi(HubAccess(hub.url, Secret(hub.admin_token))) as api:
        assert not api.run(server_deletion.delete(api, "deleted", "tg-1", OWNER))


def test_a_server_of_a_user_with_a_space_in_the_name_is_deleted_by_its_ledger_entry(hub: Hub) -> None:
    user = "ann smith@example.org"
    hub.request("POST", f"/users/{user}")
    token = Secret(hub.new_token(user=user))
    options = {"profile": "bare", hub_replies.LABELS: OWNER.labels(60)}
    with HubApi(HubAccess(hub.url, token)) as api:
        assert hub_verification.user_of_token(api) == user
        api.run(server_starts.start(api, user, "tg-1", options, seconds=60.0))
    entry = server_request.ledger_entry(hub.url, user, "tg-1", None, 60.0)
    assert jupyterhub_server.Resource.model_validate(entry.deletion).delete(OWNER)
    assert hub.servers(user) == {}


def test_a_hub_that_recovers_delays_a_deletion(hub: Hub, api: HubApi) -> None:
    start(api, "bare")
    fault = hub.front.fail("DELETE", 503, times=2)
    assert delete(api)
    assert fault.used == 2
    assert hub.servers() == {}


def test_a_hub_that_does_not_recover_leaves_the_server(hub: Hub, api: HubApi) -> None:
    start(api, "bare")
    hub.front.fail("DELETE", 503)
    with pytest.raises(HubError, match="HTTP 503"):
        delete(api, seconds=3.0)
    assert list(hub.servers()) == ["tg-1"]


def test_a_broken_stream_of_events_is_opened_again(hub: Hub, api: HubApi) -> None:
    fault = hub.front.cut("GET .*/progress", 700)
    start(api, "progress")
    assert fault.used == 1
    assert hub.front.requests["GET /hub/api/users/ann/servers/tg-1/progress"] >= 2


def test_a_token_without_the_right_to_start_servers_is_refused_with_the_scopes(hub: Hub) -> None:
    token = hub.new_token(jupyterhub.ACCESS_SCOPES)
    with (
        HubApi(HubAccess(hub.url, Secret(token))) as api,
        pytest.raises(HubError, match="the token needs these scopes") as caught,
    ):
        start(api, "bare")
    assert caught.value.cause is Cause.CONFIGURATION


@pytest.mark.parametrize("missing", ["servers", "access:servers"])
def test_a_missing_scope_is_found_before_a_run(hub: Hub, missing: str) -> None:
    token = hub.new_token([scope for scope in REQUIRED_SCOPES if scope != missing])
    access = HubAccess(hub.url, Secret(token))
    with pytest.raises(ConfigurationError, match=f"the token lacks the scopes {missing}: "):
        hub_verification.verify("the target `hub`", access, None)


def test_a_hub_below_a_path_starts_and_deletes_servers(limited: Hub) -> None:
    with connected(limited) as api:
        start(api, "bare")
        headers = {"Authorization": f"token {limited.token}"}
        assert httpx.get(f"{hub_address.server_url(limited.url, 'ann', 'tg-1')}/api", headers=headers).json() == {}
        assert delete(api)
        assert limited.servers() == {}
        access = HubAccess(limited.url.removesuffix("/jupyter"), api.access.token)
    with pytest.raises(ConfigurationError, match="the address of the hub with its path"):
        hub_verification.verify("the target `hub`", access, None)


def test_a_start_waits_until_the_user_may_have_another_server(limited: Hub) -> None:
    limited.start_server("other", profile="bare")
    with connected(limited) as api:
        with pytest.raises(HubError, match="the maximum of 1 named servers") as caught:
            start(api, "bare", seconds=0.5)
        assert caught.value.cause is Cause.CAPACITY
        start(api, "bare", report=lambda _: limited.remove_server("other"))
        assert list(limited.servers()) == ["tg-1"]
        assert delete(api)


def test_labelled_servers_are_found_with_their_owner(hub: Hub, api: HubApi) -> None:
    start(api, "bare")
    hub.start_server("other", profile="bare")
    (found,) = labelled_servers.find(api, "ann", 60.0)
    assert found.resource.deletion["server"] == "tg-1"
    assert found.owner == OWNER
    assert found.is_created
