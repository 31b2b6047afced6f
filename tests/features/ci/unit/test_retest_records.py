"""The comment of a run contains what did not pass, so that /retest can repeat it."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

from toolbox.features.ci import retest_records
from toolbox.features.ci.earlier_runs import EarlierRun
from toolbox.ground.model.errors import UsageError
from toolbox.orchestration.request import RunRequest

OVERRIDES = {"a.b": "x --> <b> & --", "c": [1, None, {"d": dt.date(2026, 11, 23)}]}
PAST = EarlierRun("r-1", RunRequest("small", ["loud"], overrides=OVERRIDES, phases=["test"]), ("0123456789ab",))
ENTRY: dict[str, Any] = {"run": "r", "project": "small", "presets": [], "overrides": "", "phases": None, "cells": None}


def comment(line: str) -> str:
    return f"<!-- topgallant-run: small/w/1 -->\n{line}\n**Topgallant**"


def test_a_record_is_read_back() -> None:
    line = retest_records.line([PAST])
    record = retest_records.find(comment(line))
    assert record is not None
    (past,) = retest_records.decoded(record)
    assert (past.name, past.project, past.cells) == ("r-1", "small", ("0123456789ab",))
    assert (past.request.overrides, past.request.phases, past.request.presets) == (OVERRIDES, ["test"], ["loud"])


def test_a_record_does_not_end_its_markdown_comment() -> None:
    line = retest_records.line([PAST])
    assert "\n" not in line
    assert line.count("--") == 2
    assert line.count("<") == line.count(">") == 1


def test_a_run_that_has_not_ended_cannot_be_repeated() -> None:
    record = retest_records.find(comment(retest_records.line(None)))
    assert record is not None
    with pytest.raises(UsageError, match="has not ended, or left no results"):
        retest_records.decoded(record)


def test_a_record_with_too_many_cells_is_not_kept() -> None:
    cells = tuple(f"{number:012x}" for number in range(2000))
    line = retest_records.line([EarlierRun("r", RunRequest("small"), cells)])
    record = retest_records.find(comment(line))
    assert record is not None
    with pytest.raises(UsageError, match="too many cells of the newest run did not pass"):
        retest_records.decoded(record)


def test_a_record_elsewhere_in_a_comment_is_not_read() -> None:
    line = retest_records.line([PAST])
    assert retest_records.find(f"marker\ntext\n{line}") is None
    assert retest_records.find(line) is None
    assert retest_records.find("") is None


@pytest.mark.parametrize(
    "record",
    [
        "",
        "7",
        "{}",
        "[7]",
        [{**ENTRY, "cells": ["../x"]}],
        [{**ENTRY, "presets": "loud"}],
        [{**ENTRY, "overrides": "a: !!python/name:os.system"}],
        [{**ENTRY, "overrides": "a: &x [1]\nb: *x"}],
        [{**ENTRY, "overrides": "["}],
        [{**ENTRY, "more": 1}],
        [ENTRY] * 21,
    ],
)
def test_a_damaged_record_is_refused(record: Any) -> None:
    text = record if isinstance(record, str) else json.dumps(record)
    with pytest.raises(UsageError, match="is damaged"):
        retest_records.decoded(text)
