"""Decides how an attempt on several machines ended, from the outcomes of its machines. It reads and writes nothing.

The outcome of the attempt is the worst outcome. A machine that was lost is worse than a workload that failed, because
the workloads on the other machines fail as a consequence. If several outcomes are equally bad, the earliest counts,
because the others may be its consequences.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from toolbox.ground.model.workloads import AttemptState, AttemptStatus, EndedBy, WorkloadOutcome

_GOOD: Final = 0
_CANCELLED: Final = 1
_FAILED: Final = 2
_LIMITED: Final = 3
_NOT_STARTED: Final = 4
_LOST: Final = 5
_SEVERITY: Final = {
    EndedBy.CANCELLED: _CANCELLED,
    EndedBy.EXIT: _FAILED,
    EndedBy.SIGNAL: _FAILED,
    EndedBy.OUT_OF_MEMORY: _LIMITED,
    EndedBy.TIMEOUT: _LIMITED,
    EndedBy.SILENCE: _LIMITED,
    EndedBy.NOT_STARTED: _NOT_STARTED,
}


@dataclass(frozen=True, slots=True)
class Ending:
    """How an attempt ended on one machine.

    Args:
        machine: the name of the machine, such as `worker 2`.
        status: the final status. If the machine is unreachable, its message names the machine.
    """

    machine: str
    status: AttemptStatus

    @property
    def outcome(self) -> WorkloadOutcome:
        """The outcome of the attempt on the machine."""
        return outcome_of(self.status)


def outcome_of(status: AttemptStatus) -> WorkloadOutcome:
    """Return the outcome of an attempt that is over on one machine."""
    if status.state is AttemptState.UNREACHABLE:
        return WorkloadOutcome(EndedBy.LOST, message=status.message, may_remain=True)
    return status.outcome or WorkloadOutcome.parse(None)


def is_good(outcome: WorkloadOutcome) -> bool:
    """Return whether a workload ended by itself with status 0."""
    return _severity(outcome) == _GOOD


def conclude(endings: Sequence[Ending]) -> WorkloadOutcome:
    """Return the outcome of an attempt.

    Args:
        endings: the endings on all machines, in the order of time. The first machine of several equally good or bad
            ones decides.
    """
    outcomes = [ending.outcome for ending in endings]
    worst = max(endings, key=lambda ending: _severity(ending.outcome))
    if len(endings) == 1:
        return worst.outcome
    return dataclasses.replace(
        worst.outcome,
        message=_message(worst),
        seconds=max(outcome.seconds for outcome in outcomes),
        cpu_seconds=sum(outcome.cpu_seconds for outcome in outcomes),
        leftovers=sum(outcome.leftovers for outcome in outcomes),
        oom_kills=sum(outcome.oom_kills for outcome in outcomes),
        log_dropped=sum(outcome.log_dropped for outcome in outcomes),
        log_fault=next((f"{each.machine}: {each.outcome.log_fault}" for each in endings if each.outcome.log_fault), ""),
        accelerators=next((outcome.accelerators for outcome in outcomes if outcome.accelerators), ""),
        changed_startup_files=", ".join(sorted({o.changed_startup_files for o in outcomes} - {""})),
        may_remain=any(outcome.may_remain for outcome in outcomes),
    )


def _severity(outcome: WorkloadOutcome) -> int:
    if outcome.ended_by is EndedBy.EXIT and outcome.exit_code == 0:
        return _GOOD
    return _SEVERITY.get(outcome.ended_by, _LOST)


def _message(ending: Ending) -> str:
    outcome = ending.outcome
    is_named = ending.status.state is AttemptState.UNREACHABLE
    if is_good(outcome) or outcome.ended_by is EndedBy.CANCELLED or is_named:
        return outcome.message
    return f"{ending.machine}: {outcome.message or f'exit status {outcome.exit_code}'}"
