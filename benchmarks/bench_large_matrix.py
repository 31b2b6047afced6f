"""Compares work on a matrix of 10,000 cells with the least work on the same data."""

from __future__ import annotations

import itertools
import json
import resource
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from measure import compare

from toolbox.ground.model.events import RunFinished, StepKind
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.matrix.axes import expand
from toolbox.matrix.matrix_block import MatrixBlock
from toolbox.records.runs.attribution import MAX_AXES, Case, attribute
from toolbox.records.runs.run_state import RunState, State, StepState
from toolbox.reports.forge import github

_ROUNDS: Final = 5
_NOISE: Final = 0.1  # the share of cells that fail without a cause
_FAILING: Final = 0.3  # the share of failed cells in a matrix in which nothing explains the failures
_SHAPES: Final = ((10_000,), (1_000, 10), (5_000, 2), (100, 100), (21, 21, 21), (10,) * 4, (2,) * 13)
_MEMORY_MB: Final = 200
_SEARCHES: Final = 22  # all failures, the 20 largest groups of equal failures, and the rest
_SHAPE_RATIO: Final = 40
_AXES: Final = {name: list(range(10)) for name in "abcd"}


def _expanded() -> bool:
    """Compare the expansion of the matrix with the product of its axes."""
    block = MatrixBlock.model_validate(
        {
            "axes": _AXES | {"e": [0]},
            "exclude": [{"a": number, "b": 10} for number in range(10)],
            "include": [{"a": number, "b": 0, "c": 0, "d": 0} for number in range(10, 1010)],
            "workload": {"command": "true"},
        }
    )
    return compare(
        "expanding 11,000 combinations / a dictionary for each of 10,000 products",
        lambda: expand(block),
        lambda: [dict(zip(_AXES, values, strict=True)) for values in itertools.product(*_AXES.values())],
        rounds=_ROUNDS,
        limit=80,
    )


def _attributed() -> bool:
    """Compare the search for the cause of failures with one count of the labels on each one to three axes."""
    rows = list(itertools.product(*["12345"] * 4, *["1234"] * 2))
    fails = np.random.default_rng(0).random(len(rows)) < _NOISE
    cases = [
        Case(dict(zip("abcdef", labels, strict=True)), labels[2] == "1" or bool(failed))
        for labels, failed in zip(rows, fails, strict=True)
    ]
    columns = list(zip(*rows, strict=True))

    def count() -> None:
        for size in range(1, MAX_AXES + 1):
            for chosen in itertools.combinations(columns, size):
                Counter(zip(*chosen, strict=True))

    return compare(
        "the cause of 2,800 failures in 10,000 cells / counting their labels",
        lambda: attribute(cases),
        count,
        rounds=_ROUNDS,
        limit=25,
    )


def _shapes() -> bool:
    """Compare the search with counts of the labels for axes of any length, and limit its memory.

    The search is slowest if it finds nothing: the cells fail at random, with 100 different failures.
    """
    memory = _peak_mb()
    within = [_shaped(shape) for shape in _SHAPES]
    grown = _peak_mb() - memory
    print(f"memory of all searches above their cells: {grown:.0f} MB (at most {_MEMORY_MB})", flush=True)
    return all(within) and grown <= _MEMORY_MB


def _shaped(shape: Sequence[int]) -> bool:
    generator = np.random.default_rng(0)
    rows = list(itertools.product(*(list(map(str, range(length))) for length in shape)))
    cases = [
        Case(dict(_named(labels)), bool(generator.random() < _FAILING), f"failure {generator.integers(100)}")
        for labels in rows
    ]
    columns = list(zip(*rows, strict=True))

    def count() -> None:
        for size in [*range(1, min(MAX_AXES, len(shape)) + 1)] * _SEARCHES:
            for chosen in itertools.combinations(columns, size):
                Counter(zip(*chosen, strict=True))

    name = " x ".join(f"{length:,}" for length in shape)
    return compare(
        f"the causes of 100 failures in {name} cells / counting the labels {_SEARCHES} times",
        lambda: attribute(cases),
        count,
        rounds=1,
        limit=_SHAPE_RATIO,
    )


def _named(labels: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the labels of a cell with the names of their axes."""
    return ((f"axis{index}", label) for index, label in enumerate(labels))


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _summarized() -> bool:
    """Compare the summary of a run on GitHub with the JSON of its messages."""
    steps = {}
    for number in range(10_000):
        verdict, cause = (Verdict.FAILED, Cause.CHECK) if number % 10 == 0 else (Verdict.PASSED, None)
        step = f"000__test/{number:03d}__cell"
        steps[step] = StepState(
            step, f"model=m{number}", StepKind.CELL, verdict, cause, "too slow\n" * 30 if cause else "", 1.5
        )
    end = RunFinished(Verdict.FAILED, Cause.CHECK, 1, "", 9.5)
    run = RunState("r-1", "training", Path("/runs/r-1"), State.FINISHED, (), None, end, steps, len(steps))
    return compare(
        "the summary of 10,000 cells / the JSON of their names and messages",
        lambda: github.step_summary(run),
        lambda: json.dumps([[step.name, step.message] for step in run.steps.values()]),
        rounds=_ROUNDS,
        limit=45,
    )


def main() -> int:
    """Measure, and return 1 if a limit is exceeded."""
    return 0 if all([_expanded(), _attributed(), _shapes(), _summarized()]) else 1


if __name__ == "__main__":
    sys.exit(main())
