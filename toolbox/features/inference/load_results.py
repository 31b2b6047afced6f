"""Reads `load.json`, the figures of the steps of a load, and names the figures.

The worker on a target has written the file, so its types are validated strictly, and its sizes are limited. Fields that
are not read may be anything. Times are in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from toolbox.features.inference.client import worker_results
from toolbox.ground.model.bounds import Direction
from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.nearest import did_you_mean
from toolbox.ground.model.text import counted, truncate, without_kind
from toolbox.records.runs.evidence_files import readable

FILE: Final = f"files/{worker_results.LOAD}"
"""The file in the directory of an attempt."""
TIMES: Final = ("first_token", "per_token", "between_tokens", "end_to_end")
"""The times of a request. `per_token` is the mean time between the tokens of a request."""
_OF_TIME: Final = ("mean", "max", "p50", "p90", "p95", "p99")
LONGEST_CLIENT_DELAY: Final = 0.05
"""If requests were sent more seconds later than planned, the worker was overloaded."""
_LARGEST: Final = 1 << 22  # bytes
_MAX_STEPS: Final = 500
_MAX_MESSAGES: Final = 100
_LONGEST_NAME: Final = 100
_LONGEST_MESSAGE: Final = 10_000


@dataclass(frozen=True, slots=True)
class Figure:
    """A number that is measured in each step.

    Args:
        direction: whether lower or higher values are better; None if neither is.
    """

    unit: str
    direction: Direction | None


STORED: Final[Mapping[str, Figure]] = {
    "offered_rate": Figure("requests/s", None),
    "completed_rate": Figure("requests/s", Direction.HIGHER),
    "goodput": Figure("requests/s", Direction.HIGHER),
    "tokens_per_second": Figure("tokens/s", Direction.HIGHER),
    "errors": Figure("", Direction.LOWER),
    "refused": Figure("", Direction.LOWER),
    **{f"{time}_{each}": Figure("s", Direction.LOWER) for time in TIMES for each in ("p50", "p95")},
}
"""The figures that become metrics of a cell. `errors` and `refused` are shares of the requests."""
FIGURES: Final = (
    *[name for name in STORED if not name.startswith(TIMES)],
    *[f"{time}_{each}" for time in (*TIMES, "client_delay") for each in _OF_TIME],
)
"""All figures that a metric can read."""

Number = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=0, lt=2**63)]


def step_name(rate: float | None, concurrency: int | None) -> str:
    """Return the name of a step, such as `rate=0.5` or `concurrency=8`."""
    return f"rate={rate:g}" if rate is not None else f"concurrency={concurrency}"


def metric_name(step: str, figure: str) -> str:
    """Return the name of the metric of a figure, such as `goodput_at_concurrency_8`."""
    return f"{figure}_at_{step.replace('=', '_')}"


class _Record(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, allow_inf_nan=False)


class Times(_Record):
    """The distribution of a time. A percentile is None if there are too few samples."""

    samples: Count
    mean: Number | None = None
    max: Number | None = None
    p50: Number | None = None
    p90: Number | None = None
    p95: Number | None = None
    p99: Number | None = None


class ErrorMessage(_Record):
    """An error, and the number of requests that failed with it."""

    message: Annotated[str, Field(max_length=_LONGEST_MESSAGE)]
    requests: Count

    def __str__(self) -> str:
        return f"{counted(self.requests, 'request')}: {truncate(' '.join(clean(self.message).split()), 200)}"


class StepResult(_Record):
    """The figures of a step, without its warm-up.

    Args:
        rate: requests per second; None for a step that keeps a number of requests running.
        concurrency: requests at the same time; None for a step with a rate.
        errors: requests that failed.
        refused: requests that the server refused for now (429 or 503 with `Retry-After`). They are not errors.
        resent: requests that were sent twice, because the server had closed the connection that was reused.
        completed_rate: requests per second that were answered without an error.
        goodput: requests per second that also met all objectives; None without objectives.
        client_delay: how much later than planned the requests were sent.
    """

    name: Annotated[str, Field(min_length=1, max_length=_LONGEST_NAME)]
    rate: Number | None = None
    concurrency: Count | None = None
    seconds: Number
    requests: Count
    errors: Count
    error_messages: Annotated[list[ErrorMessage], Field(max_length=_MAX_MESSAGES)] = []
    refused: Count = 0
    resent: Count = 0
    offered_rate: Number
    completed_rate: Number
    goodput: Number | None = None
    tokens_per_second: Number
    first_token: Times
    between_tokens: Times
    per_token: Times
    end_to_end: Times
    client_delay: Times

    @field_validator("name")
    @classmethod
    def _is_printable(cls, name: str) -> str:
        if not name.isprintable():
            raise ValueError("must be printable")
        return name

    @model_validator(mode="after")
    def _errors_are_requests(self) -> Self:
        if self.errors + self.refused > self.requests:
            raise ValueError("more errors than requests")
        return self

    @property
    def error_share(self) -> float | None:
        """The share of the requests that failed; None if there were no requests."""
        return self.errors / self.requests if self.requests else None

    @property
    def refused_share(self) -> float | None:
        """The share of the requests that were refused; None if there were no requests."""
        return self.refused / self.requests if self.requests else None

    @property
    def remarks(self) -> list[str]:
        """What to know about requests that are not errors, in a line for each kind."""
        refused, resent = counted(self.refused, "request"), counted(self.resent, "request")
        return [
            *([f"{refused} refused (429 or 503 with Retry-After)"] if self.refused else []),
            *([f"{resent} sent twice, because the server had closed the reused connection"] if self.resent else []),
        ]

    @property
    def lateness(self) -> float:
        """How much later than planned requests were sent: the 95th percentile, or the mean if there are too few."""
        delays = self.client_delay
        return next((value for value in (delays.p95, delays.mean) if value is not None), 0.0)

    def figure(self, name: str) -> float:
        """Return one of `FIGURES`.

        Raises:
            ValueError: the figure is not known; the message contains the reason.
        """
        if name == "errors":
            value, reason = self.error_share, "no request"
        elif name == "refused":
            value, reason = self.refused_share, "no request"
        elif name == "goodput":
            value, reason = self.goodput, "no goodput, because the load has no objectives"
        elif (time := next((each for each in (*TIMES, "client_delay") if name.startswith(f"{each}_")), None)) is None:
            value, reason = getattr(self, name), ""
        else:
            times: Times = getattr(self, time)
            part = name.removeprefix(f"{time}_")
            value, reason = getattr(times, part), f"no {name}: {_reason(part, times.samples)}"
        if value is None:
            raise ValueError(f"the step {self.name} has {reason}")
        return float(value)


class Objectives(_Record):
    """The times that a good request does not exceed."""

    first_token: Number | None = None
    per_token: Number | None = None
    end_to_end: Number | None = None


class LoadResults(_Record):
    """The content of `load.json`."""

    objectives: Objectives = Objectives()
    steps: Annotated[list[StepResult], Field(max_length=_MAX_STEPS)]

    @field_validator("steps")
    @classmethod
    def _names_are_distinct(cls, steps: list[StepResult]) -> list[StepResult]:
        if len({step.name for step in steps}) < len(steps):
            raise ValueError("two steps have the same name")
        return steps

    def step(self, name: str) -> StepResult:
        """Return the step of a name. A ValueError names the steps if there is no such step."""
        for step in self.steps:
            if step.name == name:
                return step
        hint = did_you_mean(name, [step.name for step in self.steps], label="steps")
        raise ValueError(f"no step `{name}` has ended: {hint}")


def read(directory: Path, file: str = FILE) -> LoadResults:
    """Return the results of a load.

    Raises:
        ValueError: the file cannot be read, or its content is wrong.
    """
    with readable(directory, file) as path, path.open("rb") as stream:
        content = stream.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise ValueError(f"{file} has more than {_LARGEST} bytes")
    try:
        return LoadResults.model_validate_json(content)
    except ValidationError as error:
        detail = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, detail["loc"]))
        message = truncate(f"{place}: {without_kind(detail['msg'])}" if place else without_kind(detail["msg"]))
        raise ValueError(f"{file} does not contain the results of a load: {message}") from None


def _reason(part: str, samples: int) -> str:
    """Return why a part of a distribution is not known."""
    if not samples:
        return "no request has this time"
    needed = 100 / (100 - int(part[1:])) if part.startswith("p") else 1
    return f"{part} needs {counted(round(needed), 'sample')}, and the step has {samples}"
