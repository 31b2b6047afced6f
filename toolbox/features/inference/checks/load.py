"""Judges a load on a server of a language model: whether all steps ran, and how many requests failed.

The worker on the target writes `load.json`. If the worker sent requests much later than planned, it was overloaded, and
what it measured is not the server. So such an attempt is an error of the infrastructure.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from toolbox.features.inference import load_results
from toolbox.features.inference.load_results import LoadResults, StepResult
from toolbox.ground.model.evidence import Evidence, Judgement
from toolbox.ground.model.quantities import AnySeconds
from toolbox.ground.model.text import counted, first_of
from toolbox.ground.model.verdicts import Cause
from toolbox.records.runs.evidence_files import RelativeFile, read_document, readable

_MAX_FAULTS: Final = 10
_MAX_MESSAGES: Final = 3  # errors of a step that the message names


class _Step(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    rate: float | None = None
    concurrency: int | None = None


class _Steps(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    steps: list[_Step]


class _Settings(BaseModel):
    """The part of the settings of the worker that names the steps."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    load: _Steps


class Check(BaseModel):
    """The file of the results, and what is allowed.

    Args:
        file: the results of the steps.
        settings: the settings of the worker, which name the steps.
        max_error_share: the largest share of the requests of a step that may fail.
        max_refused_share: the largest share of the requests of a step that the server may refuse for now, with the
            status 429 or 503 and `Retry-After`.
        max_client_delay: the longest time in seconds by which the worker may send requests later than planned, as the
            95th percentile of a step (the mean if a step has too few requests).
    """

    model_config = ConfigDict(extra="forbid")

    file: RelativeFile = load_results.FILE
    settings: RelativeFile = "src/settings.json"
    max_error_share: float = Field(default=0, ge=0, le=1, allow_inf_nan=False)
    max_refused_share: float = Field(default=0, ge=0, le=1, allow_inf_nan=False)
    max_client_delay: AnySeconds = Field(default=load_results.LONGEST_CLIENT_DELAY, gt=0, allow_inf_nan=False)

    def judge(self, evidence: Evidence) -> Judgement:
        """Judge all steps."""
        try:
            expected = self._steps(evidence)
            results = load_results.read(evidence.directory, self.file)
        except ValueError as error:
            return Judgement(False, str(error))
        faults = [*self._missing(expected, results), *(text for step in results.steps for text in self._broken(step))]
        late = list(self._late(results))
        if faults or late:
            cause = None if faults else Cause.INFRASTRUCTURE
            return Judgement(False, "\n".join(first_of([*faults, *late], _MAX_FAULTS)), self.file, cause=cause)
        requests, errors = (
            sum(values) for values in zip(*((s.requests, s.errors) for s in results.steps), strict=True)
        )
        delay = max(step.lateness for step in results.steps)
        counts = f"{counted(len(results.steps), 'step')}, {counted(requests, 'request')}, {counted(errors, 'error')}"
        delayed = f"the worker sent requests at most {_milliseconds(delay)} late"
        remarks = [f"{step.name}: {remark}" for step in results.steps for remark in step.remarks]
        return Judgement(True, "; ".join([counts, delayed, *first_of(remarks, _MAX_FAULTS)]))

    def _steps(self, evidence: Evidence) -> list[str]:
        """Return the names of the steps that the worker was to run. Raise ValueError if the settings have none."""
        if str(PurePath(self.settings)) in evidence.changed:
            raise ValueError(f"{self.settings} is not as it was sent: the workload has changed it")
        with readable(evidence.directory, self.settings) as path:
            content = read_document(path, self.settings)
        try:
            steps = _Settings.model_validate_json(content).load.steps
        except ValidationError:
            raise ValueError(f"{self.settings} has no steps of a load") from None
        if not steps:
            raise ValueError(f"{self.settings} has no steps of a load")
        return [load_results.step_name(step.rate, step.concurrency) for step in steps]

    def _missing(self, expected: list[str], results: LoadResults) -> Iterator[str]:
        names = [step.name for step in results.steps]
        if missing := [name for name in expected if name not in names]:
            steps = ", ".join(first_of(missing, _MAX_FAULTS))
            yield f"{len(missing)} of {counted(len(expected), 'step')} did not end: {steps}"
        yield from (
            f"{self.file} has the step {name}, which the settings do not name" for name in names if name not in expected
        )

    def _broken(self, step: StepResult) -> Iterator[str]:
        if not step.requests:
            yield f"{step.name}: no request was measured"
            return
        too_many = list(self._too_many(step))
        yield from too_many
        if not too_many and step.errors + step.refused == step.requests:
            yield f"{step.name}: no request was answered"

    def _too_many(self, step: StepResult) -> Iterator[str]:
        """Yield a fault if too many requests failed, and one if too many were refused."""
        of = f"of {counted(step.requests, 'request')}"
        if (share := step.error_share or 0.0) > self.max_error_share:
            messages = sorted(step.error_messages, key=lambda each: -each.requests)[:_MAX_MESSAGES]
            more = "".join(f"\n  {each}" for each in messages)
            allowed = f"more than the allowed {self.max_error_share:.1%}"
            yield f"{step.name}: {step.errors} {of} failed ({share:.1%}), {allowed}{more}"
        if (share := step.refused_share or 0.0) > self.max_refused_share:
            allowed = f"more than the allowed {self.max_refused_share:.1%}"
            yield f"{step.name}: {step.refused} {of} were refused ({share:.1%}), {allowed}"

    def _late(self, results: LoadResults) -> Iterator[str]:
        for step in results.steps:
            if (delay := step.lateness) > self.max_client_delay:
                late = f"the worker sent requests {_milliseconds(delay)} late"
                limit = f"more than {_milliseconds(self.max_client_delay)}"
                yield f"{step.name}: {late}, {limit}: it was overloaded, so the figures of this step are not valid"


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms"
