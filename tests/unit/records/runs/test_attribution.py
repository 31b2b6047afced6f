"""Conditions that failed cells have in common are found; the tests use brute force, planted causes and noise."""

from __future__ import annotations

import itertools
import math
import operator
import random
import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolbox.records.runs import attribution, axis_terms
from toolbox.records.runs.attribution import Case, Finding, attribute

Labels = Mapping[str, str]
FOUR: Sequence[str] = "1234"


def grid(**axes: Sequence[str]) -> list[Labels]:
    """Return all combinations of the labels of some axes."""
    return [dict(zip(axes, labels, strict=True)) for labels in itertools.product(*axes.values())]


def explanations(cells: Sequence[Labels], failed: Callable[[Labels], bool]) -> list[str]:
    """Return the findings as text."""
    return [str(finding) for finding in attribute([Case(labels, failed(labels)) for labels in cells])]


def test_two_axes_that_fail_together_are_named_together() -> None:
    cells = grid(machine=["A100", "H100", "L4", "T4"], runtime=["2.4", "2.5"], batch=FOUR)
    found = explanations(cells, lambda labels: labels["machine"] == "A100" and labels["runtime"] == "2.4")
    assert found == ["machine=A100 and runtime=2.4: 4 of 4 failed; elsewhere 0 of 28"]


def test_one_axis_is_named_if_it_separates_the_failures() -> None:
    found = explanations(grid(a="12", b="12"), lambda labels: labels["a"] == "1")
    assert found == ["a=1: 2 of 2 failed; elsewhere 0 of 2"]


def test_three_axes_are_named_if_fewer_do_not_separate_the_failures() -> None:
    found = explanations(
        grid(a="12", b="12", c="12", d="12"), lambda labels: labels["a"] + labels["b"] + labels["c"] == "121"
    )
    assert found == ["a=1 and b=2 and c=1: 2 of 2 failed; elsewhere 0 of 14"]


MODELS = ["small", "medium", "large"]


def test_all_labels_but_one_are_named_as_a_complement() -> None:
    cells = grid(model=MODELS, batch=["1", "8"], precision=["bf16", "fp32"])
    found = explanations(cells, lambda labels: labels["batch"] == "8" and labels["model"] != "small")
    assert found == ["model ≠ small and batch=8: 4 of 4 failed; elsewhere 0 of 8"]
    found = explanations(grid(model=MODELS, batch=FOUR), lambda labels: labels["model"] != "small")
    assert found == ["model ≠ small: 8 of 8 failed; elsewhere 0 of 4"]


@pytest.mark.parametrize(
    ("batches", "fails", "finding"),
    [
        (["8", "16", "32", "64"], ["32", "64"], "batch ≥ 32: 6 of 6 failed; elsewhere 0 of 6"),
        (["64", "8", "128", "16"], ["8", "16"], "batch ≤ 16: 6 of 6 failed; elsewhere 0 of 6"),
        (["8", "16", "32"], ["16", "32"], "batch ≥ 16: 6 of 6 failed; elsewhere 0 of 3"),
        (["8", "16", "32"], ["8", "32"], "batch ≠ 16: 6 of 6 failed; elsewhere 0 of 3"),
        (["0.5", "1", "1e3", "-2"], ["1", "1e3"], "batch ≥ 1: 6 of 6 failed; elsewhere 0 of 6"),
    ],
)
def test_a_range_of_an_axis_of_numbers_is_named(batches: list[str], fails: list[str], finding: str) -> None:
    assert explanations(grid(model=MODELS, batch=batches), lambda labels: labels["batch"] in fails) == [finding]


def test_a_range_and_a_label_are_named_together() -> None:
    cells = grid(model=MODELS, batch=["8", "16", "32", "64"], seed="12")
    found = explanations(cells, lambda labels: labels["model"] == "large" and int(labels["batch"]) >= 32)
    assert found == ["model=large and batch ≥ 32: 4 of 4 failed; elsewhere 0 of 20"]


def test_versions_are_not_compared_as_numbers() -> None:
    cells = grid(runtime=["2.9", "2.10", "2.11", "2.8"], model=["a", "b", "c"])
    assert not any("≥" in text for text in explanations(cells, lambda labels: labels["runtime"] in {"2.10", "2.11"}))


def by_failure(cells: Sequence[Labels], failure: Callable[[Labels], str | None]) -> list[str]:
    """Return the findings as text; `failure` returns the error of a cell, or None if the cell passed."""
    return [str(finding) for finding in attribute([Case(c, failure(c) is not None, failure(c) or "") for c in cells])]


def test_each_signature_is_explained_separately() -> None:
    cells = grid(model=MODELS, batch=["8", "16", "32", "64"], seed="12")

    def failure(labels: Labels) -> str | None:
        if labels["model"] == "large" and labels["batch"] == "64":
            return "out of memory"
        return "wrong loss" if labels["seed"] == "2" and labels["model"] == "small" else None

    assert by_failure(cells, failure) == [
        "model=small and seed=2: 4 of 4 failed; elsewhere 0 of 18 (wrong loss)",
        "model=large and batch=64: 2 of 2 failed; elsewhere 0 of 18 (out of memory)",
    ]


def test_two_equal_errors_beside_other_failures_are_explained() -> None:
    odd = {("small", "8", "1"): "timeout", ("medium", "16", "2"): "wrong loss"}

    def failure(labels: Labels) -> str | None:
        if labels["model"] == "large" and labels["batch"] == "32":
            return "out of memory"
        return odd.get((labels["model"], labels["batch"], labels["seed"]))

    found = by_failure(grid(model=MODELS, batch=["8", "16", "32"], seed="12"), failure)
    assert found == ["model=large and batch=32: 2 of 2 failed; elsewhere 0 of 14 (out of memory)"]


def test_one_condition_of_all_failures_is_the_only_finding() -> None:
    cells = grid(machine=["A100", "H100"], batch=FOUR)
    found = by_failure(cells, lambda labels: f"error {labels['batch']}" if labels["machine"] == "A100" else None)
    assert found == ["machine=A100: 4 of 4 failed; elsewhere 0 of 4"]


@pytest.mark.parametrize("failure", ["same", None])
def test_nothing_is_found_if_all_cells_failed(failure: str | None) -> None:
    assert by_failure(grid(a=FOUR, b=FOUR), lambda labels: failure or f"error {labels['a']}") == []


@pytest.mark.parametrize("failures", [2, 3, 4, 6])
def test_random_failures_of_a_small_matrix_are_seldom_explained_by_operators(failures: int) -> None:
    cells, rng = grid(model=MODELS, batch=["8", "16", "32", "64"], seed="12"), random.Random(failures)
    explained = 0
    for _ in range(200):
        failed = rng.sample(range(len(cells)), failures)
        found = attribute([Case(labels, index in failed) for index, labels in enumerate(cells)])
        explained += any(finding.operators for finding in found)
    assert explained / 200 <= 0.1


def test_several_causes_are_several_findings() -> None:
    found = explanations(grid(a=FOUR, b=FOUR), lambda labels: labels["a"] == "1" or labels["b"] == "3")
    assert found == ["a=1: 4 of 4 failed; elsewhere 3 of 12", "b=3: 4 of 4 failed; elsewhere 3 of 12"]


def test_two_narrow_causes_are_not_taken_for_a_broad_one() -> None:
    found = explanations(grid(a=FOUR, b=FOUR, c=FOUR), lambda labels: labels["a"] == "1" and labels["b"] in "12")
    assert found == ["a=1 and b ≤ 2: 8 of 8 failed; elsewhere 0 of 56"]
    found = explanations(grid(a=FOUR, b="wxyz", c=FOUR), lambda labels: labels["a"] == "1" and labels["b"] in "wx")
    assert found == [
        "a=1 and b=w: 4 of 4 failed; elsewhere 4 of 60",
        "a=1 and b=x: 4 of 4 failed; elsewhere 4 of 60",
    ]


def test_a_cause_with_noise_is_found() -> None:
    odd = {("1", "1", "1"), ("3", "2", "4")}  # one cell passes and one cell fails against the condition
    found = explanations(
        grid(a=FOUR, b=FOUR, c=FOUR), lambda labels: (labels["a"] == "1") is not (tuple(labels.values()) in odd)
    )
    assert found == ["a=1: 15 of 16 failed; elsewhere 1 of 48"]


@pytest.mark.parametrize("seed", range(20))
def test_a_planted_cause_is_found_in_any_noise(seed: int) -> None:
    rng = random.Random(seed)
    found = explanations(
        grid(a=FOUR, b=FOUR, c=FOUR, d="12"),
        lambda labels: (labels["b"] == "2" and labels["c"] == "3") or rng.random() < 0.04,
    )
    assert found[0].startswith("b=2 and c=3: 8 of 8 failed; ")


@pytest.mark.parametrize(
    "failed",
    [
        pytest.param(lambda _: True, id="all failed"),
        pytest.param(lambda _: False, id="none failed"),
        pytest.param(lambda labels: labels == {"a": "2", "b": "3"}, id="one cell failed"),
        pytest.param(lambda labels: labels["a"] == labels["b"], id="a diagonal failed"),
    ],
)
def test_nothing_is_found_if_no_condition_separates(failed: Callable[[Labels], bool]) -> None:
    assert explanations(grid(a=FOUR, b=FOUR), failed) == []
    assert explanations([], failed) == []


def test_an_axis_with_one_value_separates_nothing() -> None:
    cells = [{"a": "1", "b": "x"}, {"a": "1", "b": "y"}] * 2
    assert explanations(cells, lambda labels: labels["b"] == "x") == ["b=x: 2 of 2 failed; elsewhere 0 of 2"]
    assert attribute([Case({"a": "1"}, failed=True), Case({"a": "1"}, failed=False)] * 20) == []


def test_the_first_of_equivalent_axes_is_named() -> None:
    cells = [{"chip": chip, "batch": batch} for chip, batch in [("v4", "1"), ("v5", "2"), ("v6", "4")]] * 2
    assert explanations(cells, lambda labels: labels["batch"] == "2") == ["chip=v5: 2 of 2 failed; elsewhere 0 of 4"]


def test_a_cell_without_an_axis_meets_no_condition_on_the_axis() -> None:
    cells = [{"a": "1"}] * 4 + [{"a": "1", "b": "x"}] * 4
    assert explanations(cells, lambda labels: "b" not in labels) == []


def test_random_failures_are_seldom_explained() -> None:
    cells, rng = grid(a="123456", b="12345", c=FOUR), random.Random(0)
    explained = [bool(explanations(cells, lambda _: rng.random() < 0.15)) for _ in range(200)]
    assert sum(explained) / 200 <= 0.05


def test_a_cause_is_found_in_ten_thousand_cells_with_noise() -> None:
    cells, rng = grid(a="12345", b="12345", c="12345", d="12345", e=FOUR, f=FOUR), random.Random(0)
    cases = [Case(labels, labels["c"] == "1" or rng.random() < 0.1) for labels in cells]
    assert [finding.condition for finding in attribute(cases)] == [{"c": "1"}]


@st.composite
def matrices(draw: st.DrawFn) -> list[Case]:
    """Draw a small matrix in which random cells failed, or all cells that meet a condition."""
    axes = {name: "1234"[: draw(st.integers(1, 4))] for name in "abcd"[: draw(st.integers(1, 4))]}
    cells = draw(st.lists(st.sampled_from(grid(**axes)), unique_by=lambda labels: tuple(labels.values()), min_size=1))
    if draw(st.booleans()):
        condition = draw(st.sampled_from(cells))
        names = draw(st.sets(st.sampled_from(list(condition)), max_size=3))
        return [Case(cell, all(cell[name] == condition[name] for name in names)) for cell in cells]
    return [Case(cell, draw(st.booleans())) for cell in cells]


COMPARE: Mapping[str, Callable[[str, str], bool]] = {
    "=": operator.eq,
    "≠": operator.ne,
    "≥": lambda label, bound: float(label) >= float(bound),
    "≤": lambda label, bound: float(label) <= float(bound),
}


def meets(case: Case, condition: Labels, operators: Labels | None = None) -> bool:
    return all(COMPARE[(operators or {}).get(axis, "=")](case.labels[axis], label) for axis, label in condition.items())


def separating(cases: Sequence[Case]) -> Iterator[Labels]:
    """Yield all conditions that exactly the failed cells meet, the shortest first, by brute force."""
    axes = list(cases[0].labels)
    for size in (1, 2, 3):
        for names in itertools.combinations(axes, size):
            for labels in {tuple(case.labels[name] for name in names) for case in cases}:
                condition = dict(zip(names, labels, strict=True))
                if all(meets(case, condition) is case.failed for case in cases):
                    yield condition


@settings(max_examples=300, deadline=None)
@given(matrices())
def test_the_smallest_separating_condition_is_found(cases: list[Case]) -> None:
    failed = sum(case.failed for case in cases)
    exact = list(separating(cases)) if 1 < failed < len(cases) else []
    found = attribute(cases)
    if exact:
        assert len(found) == 1
        smaller = bool(found[0].operators) and len(found[0].condition) < len(exact[0])
        smallest = [condition for condition in exact if len(condition) == len(exact[0])]
        assert smaller or (found[0].condition in smallest and not found[0].operators)
        assert (found[0].failed, found[0].failed_elsewhere) == (found[0].cells, 0)
    else:
        exact_found = [found for found in found if found.failed == found.cells and not found.failed_elsewhere]
        assert all(finding.operators for finding in exact_found)


@settings(max_examples=300, deadline=None)
@given(matrices())
def test_the_counts_of_a_finding_match_the_cells(cases: list[Case]) -> None:
    for finding in attribute(cases):
        inside = [case.failed for case in cases if meets(case, finding.condition, finding.operators)]
        outside = [case.failed for case in cases if not meets(case, finding.condition, finding.operators)]
        counts = (sum(inside), len(inside), sum(outside), len(outside))
        assert finding == Finding(finding.condition, *counts, finding.operators)
        assert finding.failed * len(outside) > finding.failed_elsewhere * len(inside)


@settings(deadline=None)
@given(matrices(), st.randoms())
def test_the_order_of_the_cells_does_not_matter_if_a_condition_separates(cases: list[Case], rng: random.Random) -> None:
    shuffled = rng.sample(cases, len(cases))
    for before, after in itertools.zip_longest(attribute(cases), attribute(shuffled)):
        if before.failed == before.cells and not before.failed_elsewhere:
            assert before == after


Term = tuple[str, str, frozenset[str]]  # the operator, the label after the operator, and the labels of the set
Terms = dict[str, Term]  # by axis
Row = Mapping[str, str]


def terms_of(labels: Sequence[str]) -> Iterator[Term]:
    """Yield the terms of an axis, with the labels that meet each term."""
    every = frozenset(labels)
    ordered = sorted(labels, key=float) if all(label.lstrip("-").isdigit() for label in labels) else []
    yield from (("=", label, frozenset([label])) for label in labels)
    for label in labels if len(labels) > 2 else ():
        is_first, is_last = [label] == ordered[:1], [label] == ordered[-1:]
        named = ("≥", ordered[1]) if is_first else ("≤", ordered[-2]) if is_last else ("≠", label)
        yield *named, every - {label}
    for index in range(2, len(ordered) - 1):
        yield "≤", ordered[index - 1], frozenset(ordered[:index])
        yield "≥", ordered[index], frozenset(ordered[index:])


def holds(terms: Terms, row: Row) -> bool:
    return all(row.get(axis) in term[2] for axis, term in terms.items())


def conditions(size: int, *, of_labels: bool, rows: Sequence[Row], axes: Sequence[str]) -> Iterator[Terms]:
    """Yield the conditions of a kind that are tried."""
    varying = [axis for axis in axes if len({row.get(axis) for row in rows}) > 1]
    for names in itertools.combinations(varying, size):
        if of_labels:
            combinations = dict.fromkeys(tuple(row.get(name) for name in names) for row in rows)
            for labels in combinations:
                yield {
                    name: ("=", str(label), frozenset([label] if label else []))
                    for name, label in zip(names, labels, strict=True)
                }
            continue
        present = [list(dict.fromkeys(row[name] for row in rows if name in row)) for name in names]
        for terms in itertools.product(*map(terms_of, present)):
            if any(term[0] != "=" for term in terms):
                yield dict(zip(names, terms, strict=True))


def best_of(failed: Sequence[Row], passed: Sequence[Row], axes: Sequence[str], *, pure: bool) -> Any:
    """Return the sort key of the best condition, the number of passed cells that meet the condition, and its terms."""
    total, tried, found = len(failed) + len(passed), {True: 0, False: 0}, []
    for size, of_labels in (
        ((1, True), (1, False), (2, True), (2, False), (3, True)) if len(failed) > 1 and passed else ()
    ):
        level = list(conditions(size, of_labels=of_labels, rows=[*failed, *passed], axes=axes))
        tried[of_labels] += len(level)
        log_tries = math.log(max(1, tried[True] if of_labels else sum(tried.values())))
        for terms in level:
            inside, passes = (sum(holds(terms, row) for row in rows) for rows in (failed, passed))
            if inside < 2 or (pure and passes) or inside * total <= (inside + passes) * len(failed):
                continue
            numbers = (total, len(failed), inside + passes, inside)
            log_p_value = attribution._log_p_value(*numbers, log_tries, math.inf)
            is_exact = inside == len(failed) and not passes
            is_fact = is_exact and (of_labels or size == 1 or log_p_value <= math.log(0.1))
            found.append((not is_fact, size if is_fact else 0, log_p_value, passes, terms))
    best = min(found, key=operator.itemgetter(0, 1, 2), default=None)
    return best if best and (not best[0] or best[2] < 0) else None


def cover_of(failed: Sequence[Row], passed: Sequence[Row], axes: Sequence[str], *, pure: bool) -> list[Any]:
    """Return the conditions that together explain the failed cells, as the module describes them."""
    cover: list[Any] = []
    while len(cover) < 5 and (best := best_of(failed, passed, axes, pure=pure)):
        cover.append(best)
        failed, passed = ([row for row in rows if not holds(best[4], row)] for rows in (failed, passed))
    separates = not failed and not any(best[3] for best in cover)
    if separates and (sum(best[2] for best in cover) <= math.log(0.05) or [best[0] for best in cover] == [False]):
        return cover
    return list(itertools.takewhile(lambda best: best[2] <= math.log(0.05) or not best[0], cover))


def findings_of(failed: Sequence[Row], passed: Sequence[Row], axes: Sequence[str], failure: str = "") -> list[str]:
    covers = [cover_of(failed, passed, axes, pure=pure) for pure in (True, False)]
    found = []
    for *_, terms in min(covers, key=lambda cover: sum(best[2] for best in cover)):
        inside = [sum(holds(terms, row) for row in rows) for rows in (failed, passed)]
        named = " and ".join(axis_terms.text(axis, *term[:2]) for axis, term in terms.items())
        counts = f"{inside[0]} of {sum(inside)} failed; elsewhere {len(failed) - inside[0]} of "
        found.append(f"{named}: {counts}{len(failed) + len(passed) - sum(inside)}{f' ({failure})' if failure else ''}")
    return found


def brute_force(cases: Sequence[Case]) -> list[str]:
    """Return the findings as text, computed with sets of labels and a scan of all cells for each condition."""
    axes = list(dict.fromkeys(axis for case in cases for axis in case.labels))
    passed = [case.labels for case in cases if not case.failed]
    groups: dict[str, list[Row]] = defaultdict(list)
    for case in cases:
        if case.failed:
            groups[case.failure].append(case.labels)
    of_all = findings_of(list(itertools.chain.from_iterable(groups.values())), passed, axes)
    if len(groups) < 2 or (len(of_all) == 1 and "elsewhere 0 of" in of_all[0]):
        return of_all
    found, unexplained = [], []
    for failure, rows in sorted(groups.items(), key=lambda group: -len(group[1])):
        of_group = findings_of(rows, passed, axes, failure)
        found += of_group
        unexplained += [] if of_group else rows
    return (found + (findings_of(unexplained, passed, axes) if found else of_all))[:5]


@st.composite
def mixed_matrices(draw: st.DrawFn) -> list[Case]:
    """Draw a matrix with axes of numbers and words, missing labels, a planted cause, noise, and several failures."""
    rng = draw(st.randoms(use_true_random=False))
    pools = [["8", "16", "1", "32", "4"], ["x", "y", "z", "w"], ["10", "-2", "3", "7"]]
    axes = {name: rng.choice(pools)[: rng.randint(1, 5)] for name in "abc"[: rng.randint(1, 3)]}
    cells = [cell for cell in grid(**axes) if rng.random() < 0.8] or grid(**axes)
    cells = [{axis: label for axis, label in cell.items() if rng.random() < 0.97} for cell in cells]
    planted, names = rng.choice(cells), rng.sample(sorted(axes), rng.randint(1, len(axes)))
    noise, failures = rng.choice([0, 0.1, 0.3, 0.6]), rng.randint(1, 3)
    fails = [all(cell.get(name) == planted.get(name) for name in names) or rng.random() < noise for cell in cells]
    return [Case(cell, failed, f"error {rng.randrange(failures)}") for cell, failed in zip(cells, fails, strict=True)]


@settings(max_examples=60, deadline=None)
@given(mixed_matrices())
def test_the_findings_are_those_of_brute_force(cases: list[Case]) -> None:
    assert list(map(str, attribute(cases))) == brute_force(cases)


@pytest.mark.parametrize("shape", [(2_000,), (200, 10), (45, 45)])
def test_the_memory_is_not_quadratic_in_the_values_of_an_axis(shape: tuple[int, ...]) -> None:
    cells = grid(**{f"axis{index}": list(map(str, range(count))) for index, count in enumerate(shape)})
    cases = [Case(labels, int(labels["axis0"]) >= shape[0] * 0.6) for labels in cells]
    tracemalloc.start()
    found = attribute(cases)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [found.condition for found in found] == [{"axis0": str(math.ceil(shape[0] * 0.6))}]
    assert peak < 10e6  # sets of labels for each range of 2,000 values would need 400 MB
