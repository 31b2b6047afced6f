"""What a notifier tells people: runs of a series have begun to fail, or pass again.

A series consists of the runs of a project with the same presets, in the same job of a CI system. `orchestration`
decides when to notify, and a notifier formats and sends the message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from toolbox.ground.model.verdicts import Cause, Verdict


class NotificationKind(StrEnum):
    """Why people are notified."""

    FAILURE = "failure"
    RECOVERY = "recovery"


@dataclass(frozen=True, slots=True)
class Series:
    """The runs that succeed one another.

    Args:
        job: the workflow or job of the CI system; empty if no CI system is known.
    """

    project: str
    presets: tuple[str, ...] = ()
    job: str = ""


@dataclass(frozen=True, slots=True)
class FailedStep:
    """A cell, command or phase that did not pass."""

    name: str
    verdict: Verdict
    cause: Cause | None
    message: str


@dataclass(frozen=True, slots=True)
class Notification:
    """A message about the end of a run. Its texts may come from programs under test, so a notifier escapes them.

    Args:
        id: the same text for the same message, so that a receiver can ignore a message that it gets twice.
        url: the page of the run in the CI system; empty if unknown.
        earlier_run: the run whose failure was announced, if `kind` is a recovery; empty if unknown.
        counts: the number of cells with each verdict.
        failures: the steps that did not pass; of many, the first ones.
    """

    id: str
    kind: NotificationKind
    series: Series
    run: str
    verdict: Verdict
    cause: Cause | None = None
    message: str = ""
    started: datetime | None = None
    seconds: float = 0.0
    revision: str = ""
    url: str = ""
    earlier_run: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    failures: Sequence[FailedStep] = ()

    @property
    def title(self) -> str:
        """One line that says what has happened."""
        presets = f" ({', '.join(self.series.presets)})" if self.series.presets else ""
        happened = "fails" if self.kind is NotificationKind.FAILURE else "passes again"
        return f"{self.series.project}{presets} {happened}"
