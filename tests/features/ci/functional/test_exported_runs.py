"""Exported runs can be merged and reported like other runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.functional.grid import Grid
from tests.functional.grid import grid as grid  # noqa: PLC0414  # re-exports the fixture
from tests.functional.test_hostile_run_directories import edited, error_of
from tests.functional.test_hostile_run_directories import ran as ran  # noqa: PLC0414
from tests.functional.test_merged_shards import merge, run_shard
from tests.functional.test_merged_shards import six as six  # noqa: PLC0414  # re-exports the fixture
from tests.functional.test_since_last_run import newest
from tests.functional.test_since_last_run import recorded as recorded  # noqa: PLC0414


def test_a_merge_of_exports_gives_files_their_names_back(six: Grid, tmp_path: Path) -> None:
    exports = []
    for number in (1, 2):
        directory, _ = run_shard(six, number, shards=2)
        (file,) = directory.glob("001__test/000__*/attempt-1/files")
        (file / "trace 12:30:01.json").write_text(f"of shard {number}")
        out = tmp_path / f"shard-{number}"
        assert six.workspace.run("ci", "export", str(out), f"--run_dir={directory}").exit_code == 0
        exports.append(out)
    merged = Path(merge(six, *exports).json["directory"])
    found = {file.read_text() for file in merged.rglob("trace 12:30:01.json")}
    assert found == {"of shard 1", "of shard 2"}
    assert not list(merged.rglob("*%3A*"))


def test_a_report_without_the_store_says_what_is_new_known_and_fixed(
    recorded: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded.mark("fail-a", "fail-b").run()
    recorded.unmark("fail-a")
    monkeypatch.setenv("TOPGALLANT_RESULTS_BASELINE", "false")
    outcome = recorded.mark("fail-c").run()
    assert "against the baseline: 1 cell failing as before" in outcome.stdout.splitlines(), str(outcome)
    exported = tmp_path / "exported"
    assert recorded.workspace.run("ci", "export", str(exported), f"--run_dir={newest(recorded)}").exit_code == 0
    (recorded.root / "team.sqlite").unlink()
    (run,) = exported.glob("*/*/journal.jsonl")
    report = recorded.workspace.run("results", "report", str(run.parent), "--kind=github").stdout
    assert "<td>new failure</td><td><code>x=c</code></td><td><code>passed → failed (product)</code></td>" in report
    assert "<td>known failure</td><td><code>x=b</code></td>" in report
    assert "<td>fixed</td><td><code>x=a</code></td><td><code>failed (product) → passed</code></td>" in report


def test_a_wrong_field_of_the_request_is_named(ran: Grid) -> None:
    edited(ran, "run.json", presets=[1])
    outcome = ran.workspace.run("ci", "export", str(ran.root / "out"), f"--run_dir={ran.directory}")
    assert "presets.0: must be a valid string" in error_of(outcome, 2)
