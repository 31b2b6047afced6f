"""Tells people, at the end of a run, that a series of runs has begun to fail, or passes again (docs/notifications.md).

Only runs that count notify: see `receivers.py`. An error here never changes the verdict of the run.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from toolbox.config.configuration import Configuration
from toolbox.config.contracts.notifications import Entry
from toolbox.config.contracts.results import Contract as Results
from toolbox.ground.extensions.protocols import VerifiableNotifier
from toolbox.ground.model.errors import ConfigurationError, Interrupted, describe
from toolbox.ground.model.events import Note, NotificationEnded
from toolbox.ground.model.notifications import FailedStep, Notification, NotificationKind, Series
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.ground.system import ci_job, signals
from toolbox.orchestration import receivers, storing
from toolbox.orchestration.request import RunRequest
from toolbox.records.runs.layout import RunDirectory
from toolbox.records.runs.recorder import Recorder
from toolbox.records.runs.run_state import RunState

if TYPE_CHECKING:
    from toolbox.records.results.notification_states import Due
    from toolbox.records.results.store import Store

_TOTAL_SECONDS: Final = 30.0
_RESERVED_SECONDS: Final = 120.0  # until another run may deliver the message if this process is killed
_MAX_FAILURES: Final = 50
_LONGEST_FAULT: Final = 500

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Delivery:
    """A message to one receiver, and how its delivery ended.

    Args:
        fault: why the message was not delivered; empty if it was; None while this is unknown.
    """

    receiver: str
    entry: Entry
    due: Due
    notification: Notification
    fault: str | None = None


def verify(configuration: Configuration, request: RunRequest) -> None:
    """Check the receivers before a run begins.

    Raises:
        ConfigurationError: a library is missing, a secret cannot be used, or the run is not recorded in the store.
    """
    entries = receivers.of(configuration, request)
    if entries and not configuration.block(storing.BLOCK, Results).record:
        where = configuration.location(receivers.BLOCK)
        raise ConfigurationError(
            f"{where}: `{receivers.BLOCK}` needs the store, which `results.record: false` disables"
        )
    for name, entry in entries.items():
        if isinstance(entry.notifier, VerifiableNotifier):
            try:
                entry.notifier.verify()
            except ConfigurationError as error:
                raise ConfigurationError(f"{configuration.location(f'{receivers.BLOCK}.{name}')}: {error}") from None


def at_end(configuration: Configuration, request: RunRequest, recorder: Recorder, run: RunState) -> None:
    """Notify the receivers if the end of a run changes the state of its series."""
    try:
        is_baseline = RunDirectory(recorder.root).read_request().get("baseline") is not False  # when the run began
        entries = receivers.of(configuration, request) if is_baseline else {}
        kind = _kind_of(run)
        if entries and kind is not None and not signals.cleanup_has_ended():
            _notify(configuration, entries, kind, recorder, run)
    except (Exception, Interrupted) as error:  # noqa: BLE001  # an error here must not change the verdict of the run
        log.warning("people are not notified: %s", recorder.redactor(describe(error)))


def _kind_of(run: RunState) -> NotificationKind | None:
    """Return what the end of a run says about its series; None for a run that was cancelled, or that ran nothing."""
    end = run.finished
    if end is None or end.verdict is Verdict.SKIPPED:
        return None
    if end.verdict is Verdict.CANCELLED and end.cause is not Cause.TIMEOUT:
        return None
    return NotificationKind.RECOVERY if end.verdict.is_pass else NotificationKind.FAILURE


def _notify(
    configuration: Configuration,
    entries: Mapping[str, Entry],
    kind: NotificationKind,
    recorder: Recorder,
    run: RunState,
) -> None:
    from toolbox.records.results import notification_states
    from toolbox.records.results.store import Store

    series = Series(run.project, run.presets, ci_job.series())
    with Store(storing.location(configuration)) as store:
        deliveries = list(_due(store, series, entries, kind, run))
        silent = [each for each in deliveries if kind not in each.entry.when]
        for each in silent:
            notification_states.end(store, each.due, kind, run.run)
        loud = [each for each in deliveries if kind in each.entry.when]
        _deliver_all(loud)
        for each in loud:
            notification_states.end(store, each.due, kind if each.fault == "" else None, run.run)
            _record(each, recorder)


def _due(
    store: Store, series: Series, entries: Mapping[str, Entry], kind: NotificationKind, run: RunState
) -> Iterator[_Delivery]:
    from toolbox.records.results import notification_states

    assert run.started is not None, "a run that has ended has begun"
    for name, entry in entries.items():
        due = notification_states.begin(store, series, name, kind, started=run.started, seconds=_RESERVED_SECONDS)
        if due is not None:
            earlier = due.earlier_run if kind is NotificationKind.RECOVERY else ""
            yield _Delivery(name, entry, due, _notification(run, series, kind, earlier))


def _notification(run: RunState, series: Series, kind: NotificationKind, earlier_run: str) -> Notification:
    end = run.finished
    assert end is not None, "only an ended run is announced"
    failures = run.failures[:_MAX_FAILURES] if kind is NotificationKind.FAILURE else []
    return Notification(
        f"{run.run}-{kind}",
        kind,
        series,
        run.run,
        end.verdict,
        end.cause,
        end.message,
        run.started,
        run.seconds,
        run.revision,
        ci_job.url(),
        earlier_run,
        Counter(str(cell.verdict) for cell in run.cells if cell.verdict is not None),
        [
            FailedStep(step.name, step.verdict, step.cause, step.message)
            for step in failures
            if step.verdict is not None
        ],
    )


def _deliver_all(deliveries: list[_Delivery]) -> None:
    """Send all messages at the same time. A notifier that exceeds the time limit is left behind in its thread."""
    threads = [threading.Thread(target=_deliver, args=(each,), daemon=True) for each in deliveries]
    deadline = time.monotonic() + _TOTAL_SECONDS
    with _interruptions(deliveries):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
    for each in deliveries:
        each.fault = f"it has not ended within {_TOTAL_SECONDS:g} s" if each.fault is None else each.fault


@contextmanager
def _interruptions(deliveries: list[_Delivery]) -> Iterator[None]:
    """End the wait in the body at the third signal."""
    try:
        yield
    except Interrupted as error:
        for each in deliveries:
            each.fault = str(error) if each.fault is None else each.fault


def _deliver(delivery: _Delivery) -> None:
    notify: Callable[[Notification], object] = delivery.entry.notifier.notify
    try:
        notify(delivery.notification)
    except (Exception, SystemExit) as error:  # noqa: BLE001  # a notifier of a workspace may raise any error
        delivery.fault = describe(error) or type(error).__name__
    else:
        delivery.fault = ""


def _record(delivery: _Delivery, recorder: Recorder) -> None:
    kind, fault = delivery.notification.kind, recorder.redactor(delivery.fault or "")[:_LONGEST_FAULT]
    recorder.record(NotificationEnded(delivery.receiver, kind, fault))
    if fault:
        log.warning(
            "the notification `%s` of this run was not delivered: %s; the end of the next run tries again",
            delivery.receiver,
            fault,
        )
    else:
        recorder.record(Note("", f"the notification `{delivery.receiver}` was delivered: {kind}"))
