"""The block `load` of a specification: steps of a rate or a concurrency, and the metrics and checks of these steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from toolbox.features.inference import load_results
from toolbox.features.inference.load_results import STORED
from toolbox.ground.model.nearest import did_you_mean
from toolbox.ground.model.quantities import AnySeconds, Duration, Range

_MAX_STEPS: Final = 50  # of a kind
_HIGHEST_RATE: Final = 10_000
_LONGEST_SECONDS: Final = 1_000_000
_HIGHEST_CONCURRENCY: Final = 1000


def _is_stored(name: str) -> str:
    if name not in STORED:
        raise ValueError(f"no figure `{name}`: {did_you_mean(name, STORED, label='figures', most=len(STORED))}")
    return name


Seconds = Annotated[float, Range(above=0, most=_LONGEST_SECONDS), Duration()]
Rate = Annotated[float, Field(gt=0, le=_HIGHEST_RATE, allow_inf_nan=False)]
Concurrency = Annotated[int, Field(ge=1, le=_HIGHEST_CONCURRENCY)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Objectives(_Strict):
    """The times in seconds that a good request does not exceed. None stands for no limit.

    Args:
        first_token: the time to the first token.
        per_token: the mean time between the tokens of the request.
        end_to_end: the time to the end of the answer.
    """

    first_token: Seconds | None = None
    per_token: Seconds | None = None
    end_to_end: Seconds | None = None


class Load(_Strict):
    """A load, in steps. The steps run in this order: all rates, then all concurrencies.

    Args:
        cases: the case files whose requests are sent, in order, again and again; None for those of the specification.
        rates: requests per second, which arrive whether earlier requests are answered or not.
        concurrencies: requests at the same time; the next request is sent when an answer is complete.
        seconds: the time of each step, including its warm-up.
        warm_up: the time at the beginning of each step. Its requests are not measured.
        arrivals: `poisson` for random times between the requests of a rate, `constant` for equal times.
        seed: determines the random times.
        bounds: the figures that are compared with earlier runs, in each step.
    """

    cases: list[Annotated[str, Field(min_length=1)]] | None = Field(default=None, min_length=1)
    rates: list[Rate] = Field(default=[], max_length=_MAX_STEPS)
    concurrencies: list[Concurrency] = Field(default=[], max_length=_MAX_STEPS)
    seconds: Seconds = 60
    warm_up: AnySeconds = Field(default=10, ge=0, allow_inf_nan=False)
    arrivals: Literal["poisson", "constant"] = "poisson"
    seed: int = Field(default=0, ge=0, le=10**15)
    objectives: Objectives = Objectives()
    bounds: list[Annotated[str, AfterValidator(_is_stored)]] = []

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if not self.names:
            raise ValueError("a load needs `rates`, `concurrencies` or both")
        if repeated := [name for name, count in Counter(self.names).items() if count > 1]:
            raise ValueError(f"the step {repeated[0]} occurs more than once")
        if self.warm_up >= self.seconds:
            raise ValueError(f"`warm_up` {self.warm_up:g} leaves nothing to measure in `seconds` {self.seconds:g}")
        measured = self.seconds - self.warm_up
        if slow := [rate for rate in self.rates if rate * measured < 1]:
            raise ValueError(f"the rate {slow[0]:g} sends less than one request in the {measured:g} measured seconds")
        if "goodput" in self.bounds and not self.has_objectives:
            raise ValueError("bounds of `goodput` need `objectives`")
        return self

    @property
    def names(self) -> Sequence[str]:
        """The names of the steps."""
        rates = [load_results.step_name(rate, None) for rate in self.rates]
        return [*rates, *(load_results.step_name(None, number) for number in self.concurrencies)]

    @property
    def total(self) -> float:
        """The time of all steps in seconds."""
        return self.seconds * len(self.names)

    @property
    def has_objectives(self) -> bool:
        """Whether there is an objective."""
        return any(value is not None for value in self.objectives.model_dump().values())

    @property
    def settings(self) -> dict[str, Any]:
        """The field `load` of the settings of the worker."""
        common = self.model_dump(mode="json", include={"seconds", "warm_up", "arrivals", "seed"})
        rates = [{"rate": rate, "concurrency": None, **common} for rate in self.rates]
        concurrencies = [{"rate": None, "concurrency": number, **common} for number in self.concurrencies]
        return {"steps": [*rates, *concurrencies], "objectives": self.objectives.model_dump(mode="json")}

    def figures(self) -> Iterator[tuple[str, str, str]]:
        """Yield each figure of each step: the name of the metric, of the step and of the figure."""
        for step in self.names:
            for figure in STORED:
                if figure != "goodput" or self.has_objectives:
                    yield load_results.metric_name(step, figure), step, figure


def expectations(loads: Mapping[str, Load], when: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the metrics by name, and the checks, of some loads.

    Args:
        loads: the load of each model.
        when: the values of the other axes in cells with a load.
    """
    models: dict[str, list[str]] = {}
    bounded: dict[str, list[str]] = {}
    sources: dict[str, dict[str, Any]] = {}
    for model, load in loads.items():
        for name, step, figure in load.figures():
            direction = STORED[figure].direction
            source = {"source": "load", "step": step, "figure": figure, "unit": STORED[figure].unit}
            sources[name] = {**source, **({"direction": direction.value} if direction is not None else {})}
            models.setdefault(name, []).append(model)
            if figure in load.bounds:
                bounded.setdefault(name, []).append(model)
    metrics = {name: {**source, "when": {"model": models[name], **when}} for name, source in sources.items()}
    checks = [
        {"check": "metric", "metric": name, "bounds": "auto", "when": {"model": names, **when}}
        for name, names in bounded.items()
    ]
    return metrics, checks
