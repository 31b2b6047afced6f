"""Excerpts of logs are read for a page."""

from pathlib import Path

import pytest

from toolbox.ground.model.events import CheckJudged, StepKind
from toolbox.ground.model.verdicts import Verdict
from toolbox.records.runs.run_state import StepState
from toolbox.reports._excerpts import Excerpts


@pytest.mark.parametrize("withheld", [set(), {"000__a/run.log"}], ids=["shown", "withheld"])
@pytest.mark.parametrize("line", [None, 1], ids=["end of the log", "evidence"])
def test_there_is_no_excerpt_of_a_file_that_contains_a_secret(
    tmp_path: Path, withheld: set[str], line: int | None
) -> None:
    (tmp_path / "000__a").mkdir()
    (tmp_path / "000__a/run.log").write_text("hunter2\n")
    check = CheckJudged("000__a", "log_lacks", passed=False, message="", file="run.log" if line else "", line=line)
    step = StepState("000__a", "a", StepKind.COMMAND, Verdict.FAILED, checks=[check])
    found = Excerpts(tmp_path, withheld=withheld).of(step, is_bad=True)
    assert bool(found) is not bool(withheld)
