"""Runs the cells of a plan: whose turn it is, what comes of each attempt, and when to stop.

One thread decides, and writes everything down. It asks nothing of a target: `executions` brings it the news.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from toolbox.matrix import abandoned, judgement
from toolbox.matrix.abandoned import Left
from toolbox.matrix.cell_progress import CellResult, CellRun, Conclusion, concluded_before, own_judgements
from toolbox.matrix.executions import Executions
from toolbox.matrix.judgement import NamedCheck
from toolbox.matrix.plan import Cell, Plan
from toolbox.matrix.pools import FairQueue, Pools
from toolbox.matrix.relations import Relations
from toolbox.model.clusters import Access
from toolbox.model.errors import ToolboxError, describe
from toolbox.model.events import AttemptReleased, AttemptSubmitted, MatrixPlanned, Note, StepKind
from toolbox.model.evidence import Metric, Reference
from toolbox.model.verdicts import Cause, Verdict
from toolbox.model.workloads import AttemptState, Handle
from toolbox.runs.past import PastAttempt, PastStep
from toolbox.runs.steps import Outcome, Step
from toolbox.system import cancellation, environ, signals

log = logging.getLogger(__name__)

_GLANCE_SECONDS: Final = 0.1
_LOOK_SECONDS: Final = 1.0  # for a signal that the system has handed to another thread
_STOP_SECONDS: Final = 60.0
_OUTAGE_SHARE: Final = 1 / 3


@dataclass(frozen=True, slots=True)
class Options:
    """How to run a plan.

    Args:
        jobs: how many cells at once; as the plan says, or one for each target, when left out.
        fail_fast: cancel everything at the first cell that does not pass.
        max_failures: start no more after so many.
        rerun_failed: run again what did not pass before the run was resumed.
    """

    jobs: int | None = None
    fail_fast: bool = False
    max_failures: int | None = None
    rerun_failed: bool = False


class Scheduler:
    """Runs the cells of one plan, once.

    Args:
        step: around the cells.
        variables: environment variables of workloads on this machine.
        clusters: how to reach the clusters that the run has.
    """

    def __init__(
        self,
        plan: Plan,
        options: Options,
        step: Step,
        variables: Mapping[str, str],
        clusters: Mapping[str, Access] | None = None,
    ) -> None:
        self._plan = plan
        self._options = options
        self._step = step
        jobs = options.jobs or plan.jobs or max(1, len(plan.targets))
        self._pools = Pools(plan.targets, jobs, plan.pools)
        self._executions = Executions(
            plan.targets, step.recorder, variables, clusters or {}, jobs=jobs, on_change=self._look_at
        )
        self._held_by: Counter[str] = Counter()  # how many attempts targets hold that keep them
        self._cells = {cell.id: cell for cell in plan.cells}
        self._waiting = FairQueue()
        self._later: list[tuple[float, int, CellRun]] = []
        self._numbers = itertools.count()
        self._between: dict[str, CellRun] = {}  # those whose turn for another attempt has come
        self._running: dict[str, CellRun] = {}
        self._open_runs: list[CellRun] = []  # attempts that this session does not wait for, and that may be running
        self._removing: set[str] = set()  # targets from which abandoned attempts are being removed
        self._blocked: dict[str, list[CellRun]] = {}  # cells that wait for that, by target
        self._relations = Relations(list(plan.combinations.values()))
        self._own: dict[str, tuple[Outcome, Mapping[str, Metric]]] = {}
        self._held: dict[str, list[tuple[CellRun, Conclusion]]] = {}
        self._broken: set[str] = set()
        self._images = step.recorder.past.images()  # digests by name, of the attempts so far
        self._failures = 0
        self._is_ending = False  # whether also what runs is ended
        self.stopped = ""
        self.outage = ""
        self.results: dict[str, CellResult] = {}

    def run(self) -> None:
        """Run the cells to their end, or to that of the run.

        Raises:
            Cancelled: the run ends before they do. Everything that ran has ended then.
            ToolboxError: the run cannot go on: its journal cannot be written, say.
        """
        done = sum(self._is_done(cell, self._before(cell)) for cell in self._plan.cells)
        planned = MatrixPlanned(self._step.identity, len(self._plan.cells), self._pools.jobs, done)
        self._step.recorder.record(planned)
        unwatched = cancellation.current().add(self._executions.wake)
        with signals.deferred(self._executions.wake):
            try:
                for cell in self._plan.cells:
                    self._take(cell)
                self._discard()
                self._loop()
                self._discard()
                self._executions.settle()
                self._leave()
            except BaseException as error:
                with signals.shielded():
                    self._stop(describe(error))
                    self._executions.settle()
                    self._leave()
                raise
            finally:
                unwatched()
                self._executions.close()

    def _leave(self) -> None:
        """Have nothing of the run be left on targets where nothing of its attempts is."""
        self._executions.leave(target for target, count in self._held_by.items() if not count)

    def _loop(self) -> None:
        while True:
            self._start_what_fits()
            is_waiting = self._later or self._blocked or (len(self._waiting) and not self.stopped)
            if not (self._running or is_waiting):
                self._leave_open()
                return
            pause = self._later[0][0] - time.monotonic() if self._later else _LOOK_SECONDS
            self._executions.next_news(min(max(pause, 0.0), _LOOK_SECONDS))
            signals.check()
            cancellation.current().check()

    # What a cell begins with: what the run did before it was resumed

    def _take(self, cell: Cell) -> None:
        before = self._before(cell)
        if before is not None:
            self._release_past(before)
        if before is not None and self._is_done(cell, before):
            self._recall(cell, before)
        elif cell.skip:
            self._close(self._open(cell), Outcome(Verdict.SKIPPED, None, cell.skip), Conclusion(None))
        elif before is not None and before.is_open and before.attempts:
            self._go_on(cell, before)
        else:
            self._waiting.add(cell)

    def _before(self, cell: Cell) -> PastStep | None:
        return self._step.recorder.past.find(f"{self._step.key}/{cell.id}")

    def _is_done(self, cell: Cell, before: PastStep | None) -> bool:
        if before is None or before.finished is None or before.is_open:
            return False
        is_same = before.started.fingerprint == cell.fingerprint
        return is_same and (before.finished.verdict.is_pass or not self._options.rerun_failed)

    def _recall(self, cell: Cell, before: PastStep) -> None:
        """Take over how a cell ended."""
        assert before.finished is not None, "it is done"
        outcome = Outcome(before.finished.verdict, before.finished.cause, before.finished.message)
        directory = self._step.recorder.root / before.started.step
        attempts = len(before.attempts)
        counts = before.finished.counts
        self.results[cell.id] = CellResult(
            cell.name, cell.settings, outcome, before.metrics, directory, attempts, counts
        )
        if counts:
            self._step.add(outcome)
        if outcome.verdict is Verdict.SKIPPED:
            return
        if outcome.cause is Cause.CHECK:  # which may have compared it with another cell
            outcome = judgement.verdict(own_judgements(cell, before.attempts[-1]))
        self._own[cell.id] = (outcome, before.metrics)

    def _go_on(self, cell: Cell, before: PastStep) -> None:
        """Go on with the latest attempt of a cell: it may be running, and it may have ended while nobody looked."""
        latest = before.attempts[-1]
        ended = latest.ended
        if latest.is_abandoned:
            run = self._open(cell)
            self._between[cell.id] = run
            if latest.is_released:
                self._waiting.add(cell)
            else:
                self._blocked.setdefault(run.target, []).append(run)
            return
        is_unwanted = ended is not None and self._options.rerun_failed and not ended.verdict.is_pass
        if is_unwanted or (ended is not None and ended.verdict is Verdict.CANCELLED):
            self._waiting.add(cell)
            return
        run = self._open(cell)
        run.attempt, run.target, run.is_adopted = latest.submitted.attempt, latest.submitted.target, True
        self._pools.take(run.target, cell)
        self._hold(run.target)
        self._running[run.name] = run
        if ended is None:
            # To submit it again, under its name, finds it where it is.
            self._executions.start(run, partial(self._started, run), partial(self._conclude, run))
        else:
            run.is_over = True
            run.history.pop()
            self._conclude(run, concluded_before(cell, before))

    def _open(self, cell: Cell) -> CellRun:
        place = self._step.place(cell.name, StepKind.CELL, identity=cell.id)
        failure = (Verdict.FAILED, Cause.PRODUCT)
        step = Step(place.directory, self._step.recorder, cell.name, StepKind.CELL, failure, key=place.key)
        run = CellRun(cell, step, self._step, self._step.recorder.root.name)
        if place.before is not None:
            run.remember(place.before)
        run.begin()
        return run

    def _release_past(self, before: PastStep) -> None:
        """Remove what attempts left on their targets that ended before the run was resumed."""
        for attempt in before.attempts:
            asked = attempt.submitted
            if not self._keeps(asked.target):
                continue
            self._held_by[asked.target] += 0  # there may be something besides
            if attempt.is_released or attempt.is_open:
                continue
            self._hold(asked.target)
            if attempt.is_abandoned:
                continue  # `_discard` asks for all of its target at once
            handle = Handle(asked.name, self._step.recorder.root / before.started.step / f"attempt-{asked.attempt}")
            self._executions.release(asked.target, handle, partial(self._released_past, asked))

    def _discard(self) -> None:
        """Remove what is left of attempts that a person has given up. Their cells wait until that was tried once."""
        recorder = self._step.recorder
        for target, found in abandoned.left(self._plan, recorder.root, recorder.past.abandoned_attempts()).items():
            if target in self._removing:
                continue
            self._removing.add(target)
            self._executions.discard(target, found, self._released_abandoned, partial(self._discarded, target))
        for target in self._blocked.keys() - self._removing:
            self._discarded(target)  # the run has no such target any more

    def _released_abandoned(self, left: Left) -> None:
        left.note_removal(self._step.recorder)
        if self._keeps(left.target):
            self._held_by[left.target] -= 1

    def _discarded(self, target: str) -> None:
        self._removing.discard(target)
        for run in self._blocked.pop(target, ()):
            if run.cell.id in self._between:  # not closed meanwhile
                self._waiting.add(run.cell)

    def _released_past(self, asked: AttemptSubmitted) -> None:
        self._step.recorder.record(AttemptReleased(asked.step, asked.attempt), sync=False)
        self._held_by[asked.target] -= 1

    def _released(self, run: CellRun, target: str) -> None:
        run.released()
        self._held_by[target] -= 1

    def _hold(self, target: str) -> None:
        if self._keeps(target):
            self._held_by[target] += 1

    def _keeps(self, target: str) -> bool:
        return target in self._plan.targets and self._plan.targets[target].description.keeps_attempts

    # An attempt, from its start to what it came to

    def _start_what_fits(self) -> None:
        while self._later and self._later[0][0] <= time.monotonic():
            _, _, run = heapq.heappop(self._later)
            self._between[run.cell.id] = run
            self._waiting.add(run.cell, first=True)
        while not self.stopped and (found := self._waiting.next(self._choose)) is not None:
            cell, target = found
            earlier = self._between.pop(cell.id, None)
            if self.outage and earlier is not None and earlier.history and not earlier.is_unconfirmed:
                self._give_up(earlier)
                continue
            run = earlier or self._open(cell)
            run.submit(target)
            self._pools.take(target, cell)
            self._hold(target)
            self._running[run.name] = run
            self._executions.start(run, partial(self._started, run), partial(self._conclude, run))

    def _choose(self, cell: Cell) -> str | None:
        earlier = self._between.get(cell.id)
        return self._pools.choose(cell, avoid=earlier.target if earlier else "")

    def _started(self, run: CellRun, handle: Handle) -> None:
        run.handle = handle
        self._pools.trust(run.target)
        if self._is_ending:
            self._executions.cancel(run)
        self._look_at(run.name)

    def _look_at(self, name: str) -> None:
        run = self._running.get(name)
        if run is None or run.handle is None or run.is_over:
            return
        status = self._executions.status(run)
        if status.state is AttemptState.RUNNING:
            run.note_waiting(status.message)
        else:
            run.is_over = True
            self._executions.gather(run, status, partial(self._conclude, run))

    def _conclude(self, run: CellRun, conclusion: Conclusion) -> None:
        """Take in what an attempt came to by itself."""
        conclusion = self._with_image_compared(conclusion)
        del self._running[run.name]
        self._pools.give_back(run.target, run.cell)
        own = run.weighed(conclusion)
        if own.verdict is Verdict.CANCELLED and self._is_ending:
            own = replace(own, message=f"it was cancelled: {self.stopped}")
        if run.handle is None and not run.is_over and own.cause is Cause.INFRASTRUCTURE:
            self._pools.avoid(run.target)
        if own.verdict is not Verdict.PASSED:
            self._end(run, conclusion, own)
            return
        self._own[run.cell.id] = (own, conclusion.metrics)
        if (other := self._awaited(run.cell)) is not None:
            self._held.setdefault(other, []).append((run, conclusion))
        else:
            self._compare(run, conclusion)
        self._let_go(run.cell.id)

    def _with_image_compared(self, conclusion: Conclusion) -> Conclusion:
        """Add a remark where an image is not the one that an earlier attempt of the run had under the same name."""
        name, _, digest = conclusion.image.partition("@")
        if not digest or (before := self._images.setdefault(name, digest)) == digest:
            return conclusion
        text = f"its image {name} is {digest}, and was {before} in an earlier attempt of the run"
        return replace(conclusion, remark="; ".join(filter(None, [conclusion.remark, text])))

    def _end(self, run: CellRun, conclusion: Conclusion, outcome: Outcome) -> None:
        """Write down how an attempt ended. Another one may follow.

        Args:
            outcome: what the cell comes to, if none does.
        """
        if conclusion.is_open:
            self._open_runs.append(run)
            outcome = replace(outcome, message=f"{outcome.message}\n{self._how_to_go_on(run)}")
        else:
            keeps = self._keeps(run.target)
            attempt = conclusion.so_far()
            run.end(outcome if outcome.verdict is Verdict.CANCELLED else attempt, conclusion, sync=keeps)
            if keeps and run.handle is not None:
                self._executions.release(run.target, run.handle, partial(self._released, run, run.target))
            elif keeps:
                self._held_by[run.target] -= 1  # it never was there
        self._note_outage(run, outcome)
        if not outcome.verdict.is_pass and run.is_unconfirmed and self.stopped:
            text = f"{outcome.message}\nno other attempt has confirmed it: {self.stopped}"
            outcome = Outcome(Verdict.CANCELLED, Cause.INTERRUPTED, text)
        is_over = self.stopped or (self.outage and not run.is_unconfirmed)
        is_final = outcome.verdict.is_pass or conclusion.is_open or is_over
        pause = None if is_final else run.pause()
        if pause is None:
            self._own.setdefault(run.cell.id, (outcome, conclusion.metrics))
            self._close(run, outcome, conclusion)
            self._let_go(run.cell.id)
        else:
            self._own.pop(run.cell.id, None)
            heapq.heappush(self._later, (time.monotonic() + pause, next(self._numbers), run))

    def _how_to_go_on(self, run: CellRun) -> str:
        command = f"{environ.program()} project resume {self._step.recorder.root}"
        return (
            f"attempt {run.attempt} stays open: `{command}` goes on with it once `{run.target}` answers; "
            "with --abandon the attempt is given up, and the cell is tried again"
        )

    def _close(self, run: CellRun, outcome: Outcome, conclusion: Conclusion) -> None:
        """Write down how a cell ended."""
        cell = run.cell
        outcome = run.finish(outcome, conclusion)
        self.results[cell.id] = CellResult(
            cell.name, cell.settings, outcome, conclusion.metrics, run.step.directory, run.attempt, run.step.counts
        )
        if run.step.counts and outcome.verdict in {Verdict.FAILED, Verdict.ERROR, Verdict.XPASSED}:
            self._failures += 1
            self._stop_at_failures()

    # Cells that are compared with others

    def _awaited(self, cell: Cell) -> str | None:
        """Return the first of the cells that this one is compared with whose metrics are still to come."""
        for check in cell.expectations.checks:
            other = self._relations.other(cell.settings, check.to) if check.to is not None else None
            if other is not None and self._is_to_come(other.id):
                return other.id
        return None

    def _is_to_come(self, identity: str) -> bool:
        """Tell whether a cell will have an end of its own, now or when the run is resumed."""
        cell = self._cells.get(identity)
        if cell is None or cell.skip:
            return False
        return identity not in self._own or self._own[identity][0].verdict is Verdict.CANCELLED

    def _compare(self, run: CellRun, conclusion: Conclusion) -> None:
        checks = [check for check in run.cell.expectations.checks if self._is_compared(run.cell, check)]
        reference = partial(self._reference, run.cell)
        judged = judgement.judge(checks, run.directory, conclusion.metrics, reference)
        conclusion = replace(conclusion, judgements=(*conclusion.judgements, *judged))
        self._end(run, conclusion, run.weighed(conclusion))

    def _is_compared(self, cell: Cell, check: NamedCheck) -> bool:
        """Tell whether a check compares this cell with another one: the one that others are compared with has none."""
        if check.to is None:
            return False
        other = self._relations.other(cell.settings, check.to)
        return other is None or other.id != cell.id

    def _reference(self, cell: Cell, to: Mapping[str, Any]) -> Reference:
        other = self._relations.other(cell.settings, to)
        if other is None:
            return Reference(str(dict(to)), fault="there is no such cell", is_missing=True)
        if other.id not in self._own:
            return Reference(other.name, fault="it was not run", is_missing=True)
        outcome, metrics = self._own[other.id]
        is_good = outcome.verdict is Verdict.PASSED
        return Reference(other.name, metrics) if is_good else Reference(other.name, fault=f"it was {outcome.verdict}")

    def _let_go(self, *identities: str) -> None:
        """Judge the cells that have waited for these."""
        for identity in identities:
            for run, conclusion in self._held.pop(identity, ()):
                if (other := self._awaited(run.cell)) is not None:
                    self._held.setdefault(other, []).append((run, conclusion))
                else:
                    self._compare(run, conclusion)

    def _leave_open(self) -> None:
        """Close the cells that wait for one which does not end in this run: they are compared when it is resumed."""
        for identity, held in self._held.items():
            message = f"it is to be compared with `{self._cells[identity].name}`, which has not ended"
            for run, conclusion in held:
                run.end(conclusion.so_far(), conclusion, sync=True)
                self._close(run, Outcome(Verdict.CANCELLED, Cause.INTERRUPTED, message), conclusion)
        self._held.clear()

    # When to stop

    def _note_outage(self, run: CellRun, outcome: Outcome) -> None:
        # What an adopted attempt met is over: after a power failure all of them are lost, and may be run again.
        if outcome.cause is Cause.INFRASTRUCTURE and not run.is_adopted:
            self._broken.add(run.cell.id)
        else:
            self._broken.discard(run.cell.id)
        count, total = len(self._broken), len(self._cells)
        if not self.outage and count > max(1, total * _OUTAGE_SHARE):
            self.outage = f"this is an outage: {count} of {total} cells failed for infrastructure; no more retries"
            self._step.recorder.record(Note(self._step.identity, self.outage))
            later, self._later = self._later, []
            for entry in later:
                if entry[2].is_unconfirmed:
                    heapq.heappush(self._later, entry)
                else:
                    self._give_up(entry[2])

    def _give_up(self, run: CellRun) -> None:
        """End a cell that waits for another attempt as the last one ended."""
        self._close(run, run.history[-1].outcome, Conclusion(None))

    def _stop_at_failures(self) -> None:
        most = 1 if self._options.fail_fast else self._options.max_failures
        if most is None or self._failures < most or self.stopped:
            return
        count = "a cell" if self._failures == 1 else f"{self._failures} cells"
        self.stopped = f"{count} did not pass: nothing more was started"
        self._step.recorder.record(Note(self._step.identity, self.stopped))
        self._close_those_between(Outcome(Verdict.CANCELLED, Cause.INTERRUPTED, self.stopped))
        if self._options.fail_fast:
            self._is_ending = True
            self._executions.stop_starting(self.stopped)
            for run in list(self._running.values()):
                self._executions.cancel(run)

    def _stop(self, reason: str) -> None:
        """End what runs, and wait for it. What cannot be written down any more is left to a resumed run."""
        self.stopped, self._is_ending = reason, True
        deadline = time.monotonic() + _STOP_SECONDS
        self._executions.stop_starting(reason)
        for run in list(self._running.values()):
            self._executions.cancel(run)
        try:
            self._close_those_between(Outcome(Verdict.CANCELLED, Cause.INTERRUPTED, reason))
            while self._running and time.monotonic() < deadline:
                self._executions.next_news(_LOOK_SECONDS)
            self._end_open_attempts()
            self._leave_open()
        except (OSError, ToolboxError) as error:
            log.warning("the run ends without a record of all its cells: %s", describe(error))
            self._wait_unrecorded(deadline)

    def _end_open_attempts(self) -> None:
        by_target: dict[str, list[Left]] = {}
        for run in self._open_runs:
            submitted = AttemptSubmitted(run.step.identity, run.attempt, run.name, run.target)
            by_target.setdefault(run.target, []).append(Left(PastAttempt(submitted), run.cell.workload, run.directory))
        for target, attempts in by_target.items():
            self._executions.end_open(target, attempts)

    def _close_those_between(self, outcome: Outcome) -> None:
        """Close the cells that wait for another attempt, which they will not get."""
        runs = [*(run for _, _, run in self._later), *self._between.values()]
        self._later.clear()
        self._between.clear()
        for run in runs:
            self._close(run, outcome, Conclusion(None))

    def _wait_unrecorded(self, deadline: float) -> None:
        while time.monotonic() < deadline:
            left = [run for run in self._running.values() if run.handle is not None and not run.is_over]
            if all(self._executions.status(run).state is not AttemptState.RUNNING for run in left):
                return
            time.sleep(_GLANCE_SECONDS)
