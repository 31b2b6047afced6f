"""The delivery of messages has a time limit, whatever a notifier does."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from toolbox.ground.model.errors import ConfigurationError
from toolbox.ground.model.notifications import Notification, NotificationKind, Series
from toolbox.ground.model.verdicts import Verdict
from toolbox.orchestration import notifying
from toolbox.records.results.notification_states import Due

NOTIFICATION = Notification("r-1-failure", NotificationKind.FAILURE, Series("project"), "r-1", Verdict.FAILED)


def delivery(notify: Any) -> Any:
    entry: Any = SimpleNamespace(notifier=SimpleNamespace(notify=notify))
    return notifying._Delivery("team", entry, Due(1, ""), NOTIFICATION)


def test_a_notifier_that_hangs_does_not_delay_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifying, "_TOTAL_SECONDS", 0.3)
    release = threading.Event()
    sent: list[object] = []
    deliveries = [delivery(lambda _: release.wait()), delivery(sent.append)]
    notifying._deliver_all(deliveries)
    release.set()
    assert sent == [NOTIFICATION]
    assert [each.fault for each in deliveries] == ["it has not ended within 0.3 s", ""]


@pytest.mark.parametrize(
    ("error", "fault"),
    [(ConfigurationError("no key"), "no key"), (KeyError("x"), "KeyError: 'x'"), (SystemExit(3), "SystemExit: 3")],
)
def test_an_error_of_a_notifier_is_its_fault(error: BaseException, fault: str) -> None:
    def notify(_: object) -> None:
        raise error

    deliveries = [delivery(notify)]
    notifying._deliver_all(deliveries)
    assert deliveries[0].fault == fault
