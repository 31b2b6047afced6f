"""The files of bounds are read and validated, and an update replaces only what it has generated."""

import dataclasses
import datetime as dt
import random
import re
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolbox.ground.model.bounds import Bound, Method
from toolbox.ground.model.errors import ConfigurationError
from toolbox.records.results import bounds_file, bounds_parser
from toolbox.records.results.bounds_file import Difference
from toolbox.records.results.bounds_parser import Entry

ROOT = Path(__file__).parents[4]
BOUND = Bound(
    lower=0.0051,
    upper=0.0058,
    mean=0.00545,
    samples=30,
    method=Method.PREDICTION,
    unit="s",
    confidence=0.999,
    since=dt.datetime(2026, 10, 21, 2, tzinfo=dt.UTC),
    until=dt.datetime(2026, 11, 20, 2, tzinfo=dt.UTC),
)
FIELDS = """\
lower: 0.0051
upper: 0.0058
mean: 0.00545
unit: s
samples: 30
method: prediction
confidence: 0.999
since: 2026-10-21T02:00:00+00:00
until: 2026-11-20T02:00:00+00:00
"""
SMALL = Entry("3f2a9c0d1e4b", "model=small,batch=8", "step_time", BOUND)
BY_HAND = """\
# what we promised
owner: ada   # ask her
reviewed: [2026-10-01,   2026-11-01]
cells:
  # the small one
  model=small,batch=8:   # it runs each night
    cell: '3f2a9c0d1e4b'
    on: ~
    metrics:
      step_time:
        lower: 5.10e-3    # of the data sheet
        # and this is measured
        upper: 0.0058
        why: |
          text # no comment

  # the large one is slow
  model=large,batch=8:
    cell: 44a
    metrics:
      step_time: {lower: 1, upper:  2}   # by hand
# the end
"""


def fields(column: int) -> str:
    return "".join(f"{' ' * column}{line}\n" for line in FIELDS.splitlines())


def moved(by: float) -> Bound:
    """Return the bound with its numbers moved by a value."""
    return dataclasses.replace(BOUND, lower=0.0051 + by, upper=0.0058 + by, mean=0.00545 + by)


def entry(cell: str, name: str, metric: str = "step_time", bound: Bound = BOUND) -> Entry:
    return Entry(cell, name, metric, bound)


def update(file: Path, entries: Sequence[Entry]) -> list[Difference]:
    return bounds_file.load(file).update(entries)


def by_series(entries: Sequence[Entry]) -> dict[tuple[str, str], Bound]:
    return {(one.cell, one.metric): one.bound for one in entries}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config" / "bounds" / "p.yaml"


@pytest.fixture(params=["SafeLoader", "CSafeLoader"])
def _plain_and_c(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read YAML with and without libyaml, which some systems lack."""
    monkeypatch.setattr(bounds_parser, "FastLoader", getattr(yaml, request.param))


def written(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(dedent(text))
    return file


# The content of a file


def test_a_missing_file_has_no_bounds(file: Path) -> None:
    assert bounds_file.read(file) == {}


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "cells:\n", "cells: {}\n", "owner: ada\n", "---\n"])
def test_an_empty_file_has_no_bounds(file: Path, text: str) -> None:
    assert bounds_file.read(written(file, text)) == {}


def test_all_fields_of_a_bound_are_read(file: Path) -> None:
    written(file, f"cells:\n  small:\n    cell: 3f2a\n    metrics:\n      step_time:\n{fields(8)}")
    assert bounds_file.read(file) == {("3f2a", "step_time"): BOUND}


def test_a_person_writes_a_cell_and_one_bound(file: Path) -> None:
    written(file, "cells: {small: {cell: 123, metrics: {loss: {upper: 3}}}}")
    assert bounds_file.read(file) == {("123", "loss"): Bound(None, 3, None, None, Method.MANUAL)}
    assert bounds_file.read(file)["123", "loss"].is_gating


def test_unknown_keys_are_ignored(file: Path) -> None:
    found = bounds_file.read(written(file, BY_HAND))
    assert {key: (bound.lower, bound.upper) for key, bound in found.items()} == {
        ("3f2a9c0d1e4b", "step_time"): (0.0051, 0.0058),
        ("44a", "step_time"): (1, 2),
    }


def test_an_unknown_key_may_resemble_a_key_that_is_present(file: Path) -> None:
    written(file, "cells: {x=a: {cell: abc, cells: 3, metrics: {t: {lower: 1, lower2: 0, note: x}}}}\n")
    assert bounds_file.read(file)["abc", "t"].lower == 1


def metric(text: str) -> str:
    return f"cells:\n  a:\n    cell: 1\n    metrics:\n      m:\n        upper: 1\n        {text}\n"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("cells: [1]", 1, "`cells` must be a mapping, not a list"),
        ("5", 1, "the document must be a mapping, not '5'"),
        ("cells: {a: 5}", 1, "`cells.a` must be a mapping, not '5'"),
        ("cells:\n  a: {metrics: {}}", 2, "`cells.a` has no `cell`"),
        ("cells:\n  a: {cell: ''}", 2, "`cells.a.cell` is empty"),
        ("cells:\n  a: {cell: [1]}", 2, "`cells.a.cell` must be a string, not a list"),
        ("cells:\n  a: {cell: 1}\n  b: {cell: 1}", 3, "the cell 1 is also in line 2, as a"),
        ("cells:\n  a: {cell: 1}\n  a: {cell: 2}", 3, "`a` is given twice in `cells`, first in line 2"),
        ("cells:\n  [a]: {cell: 1}", 2, "each key of `cells` must be a name, not a list"),
        ("cells:\n  a:\n    cell: 1\n    metrics: {m: {mean: 1}}", 4, "has no bounds: set `lower`, `upper` or both"),
        ("cells:\n  a:\n    cell: 1\n    metrics: {m: 3}", 4, "`cells.a.metrics.m` must be a mapping, not '3'"),
        (metric("lower: 1.5"), 7, "the lower bound 1.5 is above the upper bound 1"),
        (metric("lower: '0.5'"), 7, "`cells.a.metrics.m.lower` must be a finite number without quotes, not '0.5'"),
        (metric("lower: .nan"), 7, "a finite number"),
        (metric("lower: -.inf"), 7, "a finite number"),
        (metric("lower: 1e999"), 7, "a finite number"),
        (metric("lower: true"), 7, "a finite number"),
        (metric("lower: [1]"), 7, "must be a finite number without quotes, not a list"),
        (metric("upper: 1"), 7, "`upper` is given twice in `cells.a.metrics.m`, first in line 6"),
        (metric("samples: 5.5"), 7, "a whole number above 0"),
        (metric("samples: 0"), 7, "a whole number above 0"),
        (metric("method: predicton"), 7, "is not a method: did you mean prediction?"),
        (metric("confidence: 99.9"), 7, "must be above 0 and below 1"),
        (metric("unit: {s: 1}"), 7, "must be a string, not a mapping"),
        (metric("since: yesterday"), 7, "a time with its zone"),
        (metric("since: 2026-10-21"), 7, "a time with its zone"),
        (metric("lowr: 1"), 7, "`lowr`: did you mean `lower`?"),
        ("cells:\n  a:\n    cell: 1\n    metrics: {m: {lower: 1, uppper: 2}}", 4, "`uppper`: did you mean `upper`?"),
        ("cells:\n  a:\n    cell: 1\n    metrcs: {m: {lower: 1}}", 4, "`metrcs`: did you mean `metrics`?"),
        ("cels: {}", 1, "`cels`: did you mean `cells`?"),
        ("cells:\n  a: ]", 2, "broken YAML"),
        ("cells:\n\ta: 1", 2, "broken YAML"),
        ("a: *b", 1, "broken YAML"),
        ("a: 1\n---\nb: 1", 2, "broken YAML"),
    ],
)
@pytest.mark.usefixtures("_plain_and_c")
def test_a_mistake_is_reported_with_its_line(file: Path, text: str, line: int, message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        bounds_file.read(written(file, text))
    assert str(raised.value).startswith(f"{file}:{line}: ")
    assert message in str(raised.value)


def test_a_directory_is_refused_as_a_file_of_bounds(file: Path) -> None:
    file.mkdir(parents=True)
    with pytest.raises(ConfigurationError, match=r"the file of bounds .* cannot be read"):
        bounds_file.read(file)


def test_a_file_that_is_wrong_is_not_updated(file: Path) -> None:
    written(file, metric("lower: '0.5'"))
    with pytest.raises(ConfigurationError, match="without quotes"):
        update(file, [SMALL])
    assert file.read_text() == metric("lower: '0.5'")


# A new file


def test_a_new_file_has_a_header_and_the_cells_in_order(file: Path) -> None:
    update(file, [entry("2", "b"), entry("1", "a", "x"), entry("1", "a", "m")])
    assert file.read_text() == (
        "# Bounds of the metrics of p, by cell.\n# `results update_bounds` writes this file whole. Write bounds of "
        "your own into p.manual.yaml: they win.\n"
        f'cells:\n  a:\n    cell: "1"\n    metrics:\n      m:\n{fields(8)}      x:\n{fields(8)}'
        f'  b:\n    cell: "2"\n    metrics:\n      step_time:\n{fields(8)}'
    )


def test_an_accepted_level_is_written_and_read_again(file: Path) -> None:
    moment = dt.datetime(2026, 11, 1, 2, tzinfo=dt.UTC)
    reason = "TPG-9: 'faster' # kernel"
    bound = dataclasses.replace(
        BOUND, samples=2, noise_samples=30, minimum_detectable_change=0.056, accepted_since=moment,
        accepted_by="ada", accepted_reason=reason, accepted_at=moment,
    )  # fmt: skip
    update(file, [SMALL])
    update(file, [SMALL._replace(bound=bound)])
    assert bounds_file.read(file) == by_series([SMALL._replace(bound=bound)])
    assert lint(file) == ""
    found = yaml.safe_load(file.read_text())["cells"]["model=small,batch=8"]["metrics"]["step_time"]
    assert (found["accepted_reason"], found["noise_samples"]) == (reason, 30)


def test_a_new_file_is_readable_by_all_users(file: Path) -> None:
    update(file, [SMALL])
    assert stat.S_IMODE(file.stat().st_mode) == 0o644


def test_an_empty_update_writes_no_file(file: Path) -> None:
    assert update(file, []) == []
    assert not file.exists()


def test_small_and_large_numbers_are_written_as_yaml_numbers(file: Path) -> None:
    bound = dataclasses.replace(BOUND, lower=-1e-7, upper=1e22, mean=5e-324)
    update(file, [entry("1", "a", bound=bound)])
    assert bounds_file.read(file) == {("1", "step_time"): bound}
    found = yaml.safe_load(file.read_text())["cells"]["a"]["metrics"]["step_time"]
    assert (found["lower"], found["upper"], found["mean"]) == (-1e-7, 1e22, 5e-324)


# An update


def test_an_update_changes_values_and_adds_missing_bounds(file: Path) -> None:
    update(file, [entry("2", "b"), entry("1", "a", "m")])
    update(file, [entry("2", "b", bound=moved(1)), entry("1", "a", "x")])
    expected = [entry("2", "b", bound=moved(1)), entry("1", "a", "m"), entry("1", "a", "x")]
    assert bounds_file.read(file) == by_series(expected)
    update(file.with_name("q.yaml"), expected)
    assert file.read_text() == file.with_name("q.yaml").read_text().replace("q.manual", "p.manual").replace(
        "of q", "of p"
    )


def test_a_second_update_changes_nothing(file: Path) -> None:
    entries = [SMALL._replace(metric="z"), entry("5", "new"), entry("44a", "large", "loss")]
    assert len(update(file, entries)) == 3
    before = file.read_bytes(), file.stat().st_mtime_ns, file.stat().st_ino
    assert update(file, entries) == []
    assert (file.read_bytes(), file.stat().st_mtime_ns, file.stat().st_ino) == before


def test_an_entry_that_was_edited_out_of_order_is_put_in_order(file: Path) -> None:
    update(file, [entry("1", "a"), entry("2", "b")])
    text = file.read_text()
    first, a, b = (
        text.partition("  a:\n")[0],
        text[text.index("  a:\n") : text.index("  b:\n")],
        text[text.index("  b:\n") :],
    )
    file.write_text(first + b + a)
    assert update(file, [entry("1", "a")]) == []
    assert file.read_text() == text


def test_a_byte_order_mark_is_ignored(file: Path) -> None:
    update(file, [SMALL])
    file.write_text(f"\ufeff{file.read_text()}")
    update(file, [SMALL._replace(bound=moved(1))])
    assert bounds_file.read(file)["3f2a9c0d1e4b", "step_time"] == moved(1)


@pytest.mark.parametrize(
    "name", ["1e3", "nan", "1_0", "on", "null", "2026-10-21", "0x1F", "012", "", "~", "a ", "#", "-"]
)
def test_an_ambiguous_name_is_quoted(file: Path, name: str) -> None:
    update(file, [entry("c", "n", name)])
    assert f'\n      "{name}":\n' in file.read_text()


def test_a_name_of_any_length_is_read_again(file: Path) -> None:
    entries = [entry("c", "n" * 3000, "m m" * 1000)]
    update(file, entries)
    assert bounds_file.read(file) == by_series(entries)


def test_a_missing_value_is_omitted(file: Path) -> None:
    update(file, [SMALL])
    bound = dataclasses.replace(BOUND, lower=None, confidence=None, unit="", method=Method.RATIO)
    update(file, [SMALL._replace(bound=bound)])
    assert bounds_file.read(file) == by_series([SMALL._replace(bound=bound)])
    assert "lower" not in file.read_text()
    assert 'unit: ""\n' in file.read_text()


# Units


@pytest.mark.parametrize(
    ("written_as", "unit"),
    [("lower: 1", None), ("lower: 1, unit: ~", None), ("lower: 1, unit: ''", ""), ("lower: 1, unit: s", "s")],
)
def test_an_empty_unit_is_distinguished_from_a_missing_unit(file: Path, written_as: str, unit: str | None) -> None:
    written(file, f"cells: {{a: {{cell: c, metrics: {{m: {{{written_as}}}}}}}}}\n")
    assert bounds_file.read(file)["c", "m"].unit == unit


def test_a_missing_unit_differs_from_an_empty_unit_in_the_generated_file(file: Path) -> None:
    bare = entry("c", "a", "m", dataclasses.replace(BOUND, unit=""))
    update(file, [bare])
    assert update(file, [bare]) == []
    update(file, [new := entry("c", "a", "m", dataclasses.replace(BOUND, unit="", lower=0.005))])
    assert bounds_file.read(file) == by_series([new])


def test_bounds_in_another_unit_replace_the_old_bounds(file: Path) -> None:
    update(file, [SMALL])
    new = SMALL._replace(bound=dataclasses.replace(BOUND, lower=5.1, upper=5.8, mean=5.45, unit="ms"))
    assert len(update(file, [new])) == 1
    assert bounds_file.read(file) == by_series([new])


def test_one_metric_of_a_cell_has_one_bound(file: Path) -> None:
    with pytest.raises(ValueError, match="two bounds, but may have only one"):
        update(file, [SMALL, SMALL])


# Names of cells


def keys(file: Path) -> dict[str, str]:
    return {str(cell["cell"]): key for key, cell in yaml.safe_load(file.read_text())["cells"].items()}


@pytest.mark.parametrize(
    ("updates", "expected"),
    [
        (["c=old", "c=a: new"], {"c": "a: new"}),
        (["cb=same ca=same", "ca=same cb=same"], {"ca": "same", "cb": "same (cb)"}),
        (["cb=same", "ca=same", "cb=same ca=same"], {"cb": "same", "ca": "same (ca)"}),
        (["ca=x cb=y", "ca=y cb=x"], {"ca": "y", "cb": "x"}),
    ],
    ids=["renamed", "distinguished by their ids", "the first keeps its name", "swapped"],
)
def test_a_new_name_of_a_cell_is_written_but_not_reported_as_a_difference(
    file: Path, updates: list[str], expected: dict[str, str]
) -> None:
    for names in updates:
        differences = update(file, [entry(*cell) for cell in re.findall("(c[ab]?)=(a: new|[a-z]+)", names)])
    assert differences == []
    assert keys(file) == expected


def test_the_latest_name_of_a_cell_counts(file: Path) -> None:
    stale = dataclasses.replace(BOUND, until=dt.datetime(2026, 11, 1, tzinfo=dt.UTC))
    update(file, [entry("c", "z-old", "loss", stale), entry("c", "new")])
    assert keys(file) == {"c": "new"}


# The reported differences


def test_differences_contain_the_bounds_before_and_after(file: Path) -> None:
    update(file, [entry("44a", "model=large,batch=8")])
    large = entry("44a", "model=large,batch=8", bound=moved(1))
    new, changed = update(file, [entry("5", "model=a"), large])
    assert (new.name, new.before, new.after) == ("model=a", None, BOUND)
    assert (changed.cell, changed.metric, changed.before) == ("44a", "step_time", BOUND)


def test_differences_are_sorted_by_name(file: Path) -> None:
    entries = [entry("1", "b"), entry("2", "a", "z"), entry("2", "a", "y")]
    found = update(file, entries)
    assert [(one.name, one.metric) for one in found] == [("a", "y"), ("a", "z"), ("b", "step_time")]


# Writing the file


def test_an_update_keeps_the_mode_of_the_file(file: Path) -> None:
    update(file, [SMALL])
    file.chmod(0o640)
    update(file, [entry("5", "new")])
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_an_update_keeps_a_symbolic_link(file: Path, tmp_path: Path) -> None:
    update(file, [SMALL])
    link = tmp_path / "link.yaml"
    link.symlink_to(file)
    update(link, [SMALL._replace(bound=moved(1))])
    assert link.is_symlink()
    assert bounds_file.read(file)["3f2a9c0d1e4b", "step_time"] == moved(1)


def test_a_write_that_fails_leaves_the_file_and_nothing_else(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_self: Path, _target: Path) -> None:
        raise OSError("no space left on device")

    update(file, [SMALL])
    text = file.read_text()
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="no space"):
        update(file, [entry("5", "new")])
    assert [path.read_text() for path in file.parent.iterdir()] == [text]


def test_a_file_that_changed_after_it_was_read_is_not_written(file: Path) -> None:
    update(file, [SMALL])
    files = bounds_file.load(file)
    update(file, [SMALL._replace(bound=moved(1))])
    text = file.read_text()
    with pytest.raises(ConfigurationError, match="was changed during this update"):
        files.update([SMALL._replace(bound=moved(2))])
    assert file.read_text() == text


def test_an_update_that_is_killed_leaves_a_whole_file(file: Path) -> None:
    update(file, [SMALL])
    program = f"""
from tests.unit.results.test_bounds_file import *
file = Path({str(file)!r})
for number in range(1, 10**9):
    update(file, [entry(str(cell), f"x={{cell}}", bound=moved(number)) for cell in range(30)])
    print(number, flush=True)
"""
    for count in (0, 1, 5):
        running = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert running.stdout is not None
        with running:
            for _ in range(count):
                running.stdout.readline()
            running.kill()
        found = bounds_file.read(file)
        assert found["3f2a9c0d1e4b", "step_time"] == BOUND
        assert len({bound.lower for key, bound in found.items() if key[0].isdecimal()}) <= 1


# The manual file


def test_manual_bounds_win_over_generated_ones_for_each_metric_of_a_cell(file: Path) -> None:
    update(file, [SMALL, SMALL._replace(metric="loss"), entry("5", "other")])
    written(file.with_suffix(".manual.yaml"), "cells: {mine: {cell: 3f2a9c0d1e4b, metrics: {loss: {upper: 3}}}}\n")
    manual = Bound(None, 3, None, None, Method.MANUAL)
    assert bounds_file.read(file) == by_series(
        [SMALL, SMALL._replace(metric="loss", bound=manual), entry("5", "other")]
    )


def test_the_manual_file_alone_is_enough_and_is_never_written(file: Path) -> None:
    manual = written(file.with_suffix(".manual.yaml"), BY_HAND)
    before = manual.read_bytes(), manual.stat().st_mtime_ns, manual.stat().st_ino
    assert len(bounds_file.read(file)) == 2
    assert update(file, [SMALL, entry("44a", "large", bound=moved(1))]) == []
    assert not file.exists()
    assert len(update(file, [SMALL, entry("5", "new")])) == 1
    assert keys(file) == {"5": "new"}
    assert (manual.read_bytes(), manual.stat().st_mtime_ns, manual.stat().st_ino) == before


def test_a_mistake_in_the_manual_file_is_reported_with_its_line(file: Path) -> None:
    manual = written(file.with_suffix(".manual.yaml"), metric("lower: 1.5"))
    for call in (bounds_file.read, bounds_file.load):
        with pytest.raises(ConfigurationError) as raised:
            call(file)
        assert str(raised.value).startswith(f"{manual}:7: ")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"cells:\n  a:\n    cell: c\n    metrics:\n      m: {{lower: 1}}\n      loss:\n{fields(8)}", 5),
        ("cells:\n  a:\n    cell: c\n    metrics:\n      m:\n        lower: 1.0\n        method: manual\n", 5),
        (f"cells:\n  a:\n    cell: c\n    metrics:\n      loss:\n{fields(8)}# why\n", 15),
        (f"cells:\n  a:\n    cell: c\n    metrics:\n      loss:\n{fields(8)}        own: 1\n", 15),
        (f"owner: ada\ncells:\n  a:\n    cell: c\n    metrics:\n      loss:\n{fields(8)}", 1),
    ],
)
@pytest.mark.parametrize("dry_run", [False, True])
def test_manual_text_in_the_generated_file_is_refused(file: Path, text: str, line: int, dry_run: bool) -> None:
    written(file, text)
    assert bounds_file.read(file)
    with pytest.raises(ConfigurationError) as raised:
        bounds_file.load(file).update([SMALL], dry_run=dry_run)
    assert str(raised.value).startswith(f"{file}:{line}: `results update_bounds` did not write this line: move ")
    assert [path.read_text() for path in file.parent.iterdir()] == [text]


def lint(file: Path) -> str:
    args = [sys.executable, "-m", "yamllint", "--strict", "-c", str(ROOT / ".yamllint"), str(file)]
    return subprocess.run(args, capture_output=True, text=True, check=False).stdout


def test_a_new_file_passes_yamllint(file: Path) -> None:
    names = ["on", "1e3", "012345670123", "a: b", "x" * 300, "#", "ünï ☃", "model=small,batch=8"]
    entries = [entry(f"{index:012}", name, name) for index, name in enumerate(names)]
    file = file.with_name(f"{'training_e2e' * 3}.yaml")
    update(file, entries)
    assert lint(file) == ""


# Random content

ODD_NAMES = [*"~1'\"\x85\u2028😀 ?", "on", "null", "1e3", "a: b", "a #b", "- a", "a\nb", "{a}", "&a"]
names = st.text(max_size=30) | st.sampled_from(ODD_NAMES)
ids = st.lists(st.from_regex(r"[0-9a-f]{4}", fullmatch=True), min_size=1, max_size=5, unique=True)


def bounds_of(seed: int) -> Bound:
    rng = random.Random(seed)
    number = rng.choice([0.0, 1e-9, 0.1, 12.5, 1e20]) * rng.choice([-1, 1])
    method = rng.choice([method for method in Method if method is not Method.MANUAL])
    return Bound(
        number - 0.5, number + 0.5, number, rng.choice([5, 30]), method, rng.choice([None, "", "s", "%", "1/s"])
    )


@st.composite
def updates(draw: st.DrawFn) -> list[Entry]:
    called = {identity: draw(names) for identity in draw(ids)}
    metrics = st.lists(names, min_size=1, max_size=3, unique=True)
    return [
        Entry(cell, name, metric, bounds_of(draw(st.integers(0, 99))))
        for cell, name in called.items()
        for metric in draw(metrics)
    ]


def is_text(entries: Sequence[Entry]) -> bool:
    return not any(0xD800 <= ord(char) <= 0xDFFF for one in entries for char in one.name + one.metric)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(updates().filter(is_text), updates().filter(is_text), st.randoms())
def test_any_update_writes_the_new_bounds_and_keeps_the_others(
    tmp_path: Path, first: list[Entry], second: list[Entry], rng: random.Random
) -> None:
    file, shuffled = tmp_path / "a.yaml", tmp_path / "b.yaml"
    for old in tmp_path.iterdir():
        old.unlink()
    update(file, first)
    shuffled.write_text(file.read_text())
    update(file, second)
    assert bounds_file.read(file) == by_series(first) | by_series(second)
    assert update(file, second) == []
    update(shuffled, rng.sample(second, len(second)))
    assert shuffled.read_text() == file.read_text().replace("of a,", "of b,").replace("a.manual", "b.manual")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(updates().filter(is_text))
def test_another_yaml_reader_reads_the_file(tmp_path: Path, entries: list[Entry]) -> None:
    file = tmp_path / "a.yaml"
    file.unlink(missing_ok=True)
    update(file, entries)
    found: Mapping[str, Any] = yaml.safe_load(file.read_text())["cells"]
    assert {(cell["cell"], metric) for cell in found.values() for metric in cell["metrics"]} == by_series(
        entries
    ).keys()
