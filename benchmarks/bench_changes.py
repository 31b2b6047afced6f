"""Compares Topgallant's change points with those of E-divisive as in Apache Otava, a stricter E-divisive, and PELT.

The detectors run on generated series with known shifts, and on 25 real series if their file is beside this repository
(SAP's performance regression data set of 2021, CC-BY-4.0). Their times are measured on series of 800 points. A
detected point at most 5 points from a label is a hit. PELT needs the package ruptures. Arguments: the number of series
for each kind of noise (40), and a seed.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import statistics
import sys
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
from measure import seconds
from scipy.special import stdtr

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.unit.records.results import labelled_series  # importable because of `sys.path` above
from tests.unit.records.results.labelled_series import Labelled, Score, Values, score
from toolbox.records.results.change_points import detect

Detector = Callable[[Values], list[int]]
REAL: Final = Path(__file__).resolve().parents[2] / "shared" / "data" / "sap_small_2021.jsonl"
LARGEST_MS: Final = 50
LARGEST_FALSE: Final = 1.0  # false alarms per 1,000 points
MAX_ALARMS: Final = 1
_LOCAL: Final = 20  # number of points on each side of the local t-test


def topgallant(values: Values) -> list[int]:
    """Return the indices of all changes that Topgallant finds, including suspected changes."""
    return [change.index for change in detect(values)]


def _student(left: Values, right: Values) -> tuple[float, float]:
    """Return the absolute t of two samples, and its two-sided p-value. Spreads are computed as in Otava."""
    count = len(left) + len(right)
    if count <= 2:  # noqa: PLR2004  # no degrees of freedom
        return 0.0, 1.0
    squares = sum((len(part) - 1) * float(part.var()) for part in (left, right))
    apart = abs(float(left.mean() - right.mean()))
    if squares == 0:
        return (math.inf, 0.0) if apart else (0.0, 1.0)
    t = apart / math.sqrt(squares / (count - 2) * (1 / len(left) + 1 / len(right)))
    return t, float(2 * stdtr(count - 2, -t))


def _split(values: Values) -> tuple[float, int]:
    """Return the largest energy distance between two adjacent parts, and the size of the first part.

    The first part begins at the first value. As in E-divisive, the second part may end before the last value.
    """
    count = len(values)
    if count < 3:  # noqa: PLR2004  # Otava does not split two values
        return 0.0, 0
    sums = np.zeros((count + 1, count + 1))
    sums[1:, 1:] = np.abs(values[:, None] - values[None, :]).cumsum(axis=0).cumsum(axis=1)
    blocks, first, end = np.diag(sums), np.arange(1, count)[:, None], np.arange(2, count + 1)[None, :]
    second = end - first
    left, between = blocks[1:count, None], sums[1:count, 2:] - blocks[1:count, None]
    right = blocks[None, 2:] - left - 2 * between
    energy = 2 * between - second * left / np.maximum(first - 1, 1) - first * right / np.maximum(second - 1, 1)
    energy = np.where(second > 0, energy / end, -1.0)
    best = int(energy.argmax())
    return float(energy.flat[best]), best // energy.shape[1] + 1


def _weak(values: Values, largest_p: float) -> list[int]:
    """Return the splits of a window. The window is split at its largest distance until a t-test rejects a split."""
    edges = [0, len(values)]
    while True:
        splits = [(*_split(values[a:b]), a, b) for a, b in pairwise(edges)]
        _, size, begin, end = max(splits)
        at = begin + size
        if size == 0 or _student(values[begin:at], values[at:end])[1] > largest_p:
            return edges[1:-1]
        edges = sorted([*edges, at])


def e_divisive(window: int, largest_p: float, local_t: float = 0) -> Detector:
    """Return Otava's detector: split overlapping windows, then drop the weakest splits until all pass a t-test."""

    def detector(values: Values) -> list[int]:
        splits, start, count = set[int](), 0, len(values)
        while start < count:
            new = [start + place for place in _weak(values[start : start + window], 10 * largest_p)]
            splits |= set(new)
            start = max([start + window // 2, *new])
        edges = [0, *sorted(splits), count]
        while len(edges) > 2:  # noqa: PLR2004  # the ends of the series
            tests = [
                _student(values[a:b], values[b:c])[1] for a, b, c in zip(edges, edges[1:], edges[2:], strict=False)
            ]
            weakest = int(np.argmax(tests))
            if tests[weakest] <= largest_p:
                break
            del edges[weakest + 1]
        return [
            at
            for before, at, after in zip(edges, edges[1:], edges[2:], strict=False)
            if _student(values[max(before, at - _LOCAL) : at], values[at : min(after, at + _LOCAL)])[0] >= local_t
        ]

    return detector


def pelt(penalty: float) -> Detector:
    """Return the detector PELT for changes of the mean.

    Args:
        penalty: the penalty, divided by the variance of the noise and by the logarithm of the length.
    """
    ruptures = importlib.import_module("ruptures")  # not a dependency of Topgallant

    def detector(values: Values) -> list[int]:
        steps = np.diff(values)
        spread = 1.4826 * np.median(np.abs(steps - np.median(steps))) / math.sqrt(2) or values.std() or 1.0
        search = ruptures.KernelCPD(kernel="linear", min_size=3).fit((values / spread)[:, None])
        return [int(place) for place in search.predict(pen=penalty * math.log(len(values)))[:-1]]

    return detector


def on_generated(detector: Detector, generated: list[Labelled]) -> tuple[Score, float]:
    """Return the score over all series, and the number of false points per 1,000 points."""
    total = sum((score(series.labels, detector(series.values)) for series in generated), Score())
    return total, 1000 * total.false / sum(len(series.values) for series in generated)


def on_real(detector: Detector) -> tuple[int, int] | None:
    """Return the number of hits among the 5 regressions of the data set, and of alarms on its 20 other series.

    Return None if the data set is missing.
    """
    if not REAL.is_file():
        return None
    hits = alarms = 0
    for line in REAL.read_text(encoding="utf-8").splitlines():
        series = json.loads(line)
        places = detector(np.array(series["values"], dtype=float))
        if series["type"] == "regression":
            hits += score([series["cp"]], places).hits
        else:
            alarms += len(places)
    return hits, alarms


def milliseconds(detector: Detector, series: list[Labelled]) -> float:
    """Return the median time per series. The time of a series is the faster of two runs."""
    return 1e3 * statistics.median(min(seconds(partial(detector, each.values)) for _ in range(2)) for each in series)


def main(count: int = 40, seed: int = 1) -> int:
    """Measure, and return 1 if Topgallant's detector exceeds a limit."""
    detectors: dict[str, Detector] = {
        "Topgallant": topgallant,
        "Otava's defaults: windows of 50, p < 0.001": e_divisive(50, 1e-3),
        "windows of 40, p < 1e-6, local t > 4": e_divisive(40, 1e-6, local_t=4),
    }
    if importlib.util.find_spec("ruptures"):
        detectors |= {f"PELT, penalty {penalty}": pelt(penalty) for penalty in (20, 40, 80)}
    shifted = labelled_series.collection(seed, count)
    quiet = labelled_series.collection(seed + 1, count, shifts=0)
    long = labelled_series.collection(seed, 2, size=800)
    shifts = sum(len(series.labels) for series in shifted)
    print(
        f"{len(shifted)} generated series with {shifts} labelled shifts; {len(quiet)} series without shifts; "
        f"{REAL.name}; times for 800 points"
    )
    print(f"{'':44}   F1  precision recall false/1,000  without shifts   hits of 5  alarms on 20     ms")
    failures = 0
    for name, detector in detectors.items():
        total, false = on_generated(detector, shifted)
        none, real, took = on_generated(detector, quiet)[1], on_real(detector), milliseconds(detector, long)
        hits, alarms = real or ("-", "-")
        print(
            f"{name:44} {total.f1:.2f}  {total.precision:9.2f} {total.recall:6.2f} {false:11.2f}  {none:14.2f}"
            f"  {hits:>10}  {alarms:>12}  {took:5.1f}"
        )
        if detector is topgallant:
            failures = (max(false, none) > LARGEST_FALSE) + (took > LARGEST_MS)
            failures += real is not None and (real[0] < 5 or real[1] > MAX_ALARMS)  # noqa: PLR2004
    print(f"Topgallant is within the limits: {'NO' if failures else 'yes'}")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main(*(int(argument) for argument in sys.argv[1:])))
