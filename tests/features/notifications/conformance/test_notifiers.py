"""Requirements for every notifier that is found, also in a workspace. A notifier with a URL talks to a real server."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from tests.conformance.test_plugins import example
from tests.features.notifications.servers.webhook import PATH, Answer, Server
from toolbox.config.contracts.notifications import Contract
from toolbox.features.notifications import posting
from toolbox.ground.extensions import discovery, loading
from toolbox.ground.extensions.protocols import NOTIFIERS, VerifiableNotifier
from toolbox.ground.model.notifications import FailedStep, Notification, NotificationKind, Series
from toolbox.ground.model.secrets import Secret
from toolbox.ground.model.verdicts import Cause, Verdict

FOUND = sorted(discovery.available(NOTIFIERS.folder))
_HOSTILE = "<!channel>\x1b[31m\u202e\ud800\0\n${{ secrets.x }} ]]> " * 200
NOTIFICATION = Notification("r-1-failure", NotificationKind.FAILURE, Series("project"), "r-1", Verdict.FAILED)
NOTIFICATIONS = {
    "a failure": NOTIFICATION,
    "a recovery": replace(NOTIFICATION, kind=NotificationKind.RECOVERY, verdict=Verdict.PASSED, earlier_run="r-0"),
    "hostile texts": replace(
        NOTIFICATION,
        series=Series(_HOSTILE, (_HOSTILE,) * 3, _HOSTILE),
        message=_HOSTILE,
        revision=_HOSTILE,
        url=_HOSTILE,
        failures=[FailedStep(_HOSTILE, Verdict.ERROR, Cause.INTERNAL, _HOSTILE)] * 200,
    ),
}

each = pytest.mark.parametrize("name", FOUND)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as opened:
        yield opened


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posting, "_FIRST_PAUSE", 0.01)


def fields(model: type[BaseModel], url: str = "https://127.0.0.1:9/") -> dict[str, Any]:
    """Return values for the fields of a notifier. A field that is a secret has a URL or a key."""
    secrets = {
        key: Secret(url if key == "url" else "whsec_c2VjcmV0", reference=f"@secrets.{key}")
        for key, field in model.model_fields.items()
        if Secret in (field.annotation, *getattr(field.annotation, "__args__", ()))
    }
    return {**example(model), **secrets}


def opened(name: str, url: str) -> Any:
    model = loading.load(NOTIFIERS, name)
    return model.model_validate(fields(model, url))


def with_url(name: str) -> None:
    if "url" not in loading.load(NOTIFIERS, name).model_fields:
        pytest.skip("the notifier has no field `url`")


def test_there_are_notifiers_to_test() -> None:
    assert set(FOUND) >= {"slack", "webhook"}


@each
def test_a_notifier_is_documented_and_refuses_unknown_fields(name: str) -> None:
    model = loading.load(NOTIFIERS, name)
    assert (inspect.getmodule(model) or model).__doc__
    assert model.__doc__
    assert model.notify.__doc__  # type: ignore[attr-defined]  # `load` checks that the model has the method
    model.model_validate(fields(model))
    with pytest.raises(ValidationError, match="no_such_field"):
        model.model_validate({**fields(model), "no_such_field": 1})


@each
@pytest.mark.parametrize("notification", NOTIFICATIONS.values(), ids=NOTIFICATIONS)
def test_a_notifier_sends_any_notification(server: Server, name: str, notification: Notification) -> None:
    notifier = opened(name, server.url)
    if isinstance(notifier, VerifiableNotifier):
        notifier.verify()
    notifier.notify(notification)
    assert len(server.requests) == int("url" in type(notifier).model_fields)


@each
@pytest.mark.parametrize(
    "answer",
    [Answer(500, PATH.encode()), Answer(404, is_endless=True), Answer(302, headers={"Location": PATH})],
    ids=["error", "endless", "redirect"],
)
def test_a_server_that_refuses_the_message_is_an_error_without_the_url(
    server: Server, name: str, answer: Answer
) -> None:
    with_url(name)
    server.usual = answer
    began = time.monotonic()
    with pytest.raises(Exception, match=f"HTTP status {answer.status}") as caught:
        opened(name, server.url).notify(NOTIFICATION)
    assert PATH.rpartition("/")[2] not in str(caught.value)
    assert time.monotonic() - began < posting.TIMEOUT


@each
def test_no_text_of_a_notifier_shows_its_secrets(name: str) -> None:
    assert "s3cr3t" not in repr(opened(name, "https://hooks.lab/s3cr3t"))


@each
def test_a_url_that_is_written_into_the_configuration_is_refused_and_not_repeated(name: str) -> None:
    with_url(name)
    spec = {**fields(loading.load(NOTIFIERS, name)), "notifier": name, "url": "https://hooks.lab/s3cr3t"}
    with pytest.raises(ValidationError) as caught:
        Contract.model_validate({"team": spec})
    (fault,) = caught.value.errors()
    assert "url: must be a secret" in fault["msg"]
    assert "s3cr3t" not in fault["msg"]
