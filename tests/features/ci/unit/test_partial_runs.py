"""A run is partial if it lacks something of the full run, however the comment says so."""

from __future__ import annotations

import datetime as dt

import pytest

from toolbox.features.ci import partial_runs, slash
from toolbox.features.ci.comment_runs import Settings
from toolbox.orchestration import request as run_requests
from toolbox.orchestration.request import RunRequest
from toolbox.testing import Workspace

PROJECT = {
    "projects/parts/orchestration.py": '''
        """Runs a matrix."""
        from toolbox.orchestration import matrix

        def prepare():
            pass

        def test():
            matrix.run()
    ''',
    "config/parts.yaml": """
        ci_presets:
          to_apply: null
          names: null
          usual: {text: usual}
          smoke: {sizes: [1]}
          same: {text: usual}
          more: {matrix.axes.x: [a, b, c]}
        ci:
          overridable: ["matrix", "matrix.**", "text", "sizes"]
          jobs: {nightly: {presets: [usual]}, other: {target: second}}
          clusters: {metal: {presets: [smoke]}}
        secrets: {dir: {env_key: VAULT}, token: token}
        key: "*$@secrets.token"
        text: hello
        sizes: [1, 2]
        targets: {second: {backend: local}}
        matrix:
          axes: {x: [a, b], n: "@sizes"}
          exclude: [{x: b, n: 2}]
          include: []
          skip: [{when: {x: b, n: 1}, reason: slow}]
          xfail: []
          quarantine: [{when: {x: a, n: 2}, reason: flaky, owner: me, expires: 2099-01-01}]
          settings: []
          target: local
          jobs: 2
          deadline: null
          reuse_results: null
          timeouts: {run: 60, wait: 600, silence: null, grace: 10}
          retries: {check: 0, product: 0}
          workload: {command: ["true"], env: {TEXT: "@text", KEY: "@key"}, log_bytes: 65536, collect: ["**"]}
          metrics: {}
          checks: [{check: files, glob: "*", count: 1}]
    """,
}
EXCUSE = "when: {x: a}, reason: r, owner: o, expires: 2099-01-01"


@pytest.fixture(autouse=True)
def _workspace(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workspace.write(PROJECT).directory)


def differences(text: str, description: str = "", **settings: object) -> list[str]:
    comment, faults = slash.read(text, ["parts"], description)
    assert not faults
    known = Settings("parts", ["usual"], ["usual", "smoke", "same", "more"], **settings)  # type: ignore[arg-type]
    return list(partial_runs.differences(comment, known))


@pytest.mark.parametrize(
    "commands",
    [
        "/test parts",
        "/test parts usual",
        "/test nightly parts",
        "/test parts\n/var text: usual",
        "/test parts\n/var $.text: usual",
        "/test parts\n/only prepare test",
        "/test parts\n/cells *",
        "/test parts\n/cells x=a,*",  # the only other cell is skipped
        "/test parts\n/var matrix.axes.x: [c, b, a]",
        "/test parts\n/var matrix.exclude: []",
        "/test parts\n/var matrix.include: [{x: d, n: 7}]",
        "/test parts\n/var matrix.skip: []",
        "/test parts\n/var matrix.quarantine: []",
        "/test parts\n/test parts usual",
    ],
)
def test_a_run_that_lacks_nothing_is_a_full_run(commands: str) -> None:
    assert differences(commands) == []


@pytest.mark.parametrize(
    ("commands", "expected"),
    [
        ("/retest parts", "/retest repeats only what did not pass"),
        ("/skip prepare", "phases left out: prepare"),
        ("/only test", "phases left out: prepare"),
        ("/cells x=a,n=2", "1 of 2 cells left out: x=a,n=1"),
        ("/quarantine x=a,n=1 broken", "1 of 2 cells put into quarantine: x=a,n=1"),
        ("/cluster metal", "fields with other values: ci_presets.names, sizes"),
        *(
            (f"/var {path}: [{{when: {{x: a, n: 1}}, reason: r}}]", "1 of 2 cells skipped: x=a,n=1")
            for path in (
                "matrix.skip",
                "$.matrix.skip",
                '"$[\\"matrix\\"].skip"',
                "'$[\"matrix\"].skip'",
                '"mat\\u0072ix.skip"',
            )
        ),
        (f"/var $.matrix.quarantine: [{{{EXCUSE}}}]", "1 of 2 cells put into quarantine: x=a,n=1"),
        (f"/var $.matrix.xfail: [{{{EXCUSE}}}]", "fields with other values: matrix.xfail"),
        ("/var $.matrix.axes: {x: [a], n: [1]}", "1 of 2 cells left out: x=a,n=2"),
        ("/var $.matrix.axes.x[0]: z", "2 of 2 cells left out: x=a,n=1, x=a,n=2"),
        ("/var $.matrix.axes.x: {a: z, b: b}", "2 of 2 cells left out: x=a,n=1, x=a,n=2"),
        ("/var $.matrix.exclude: [{n: 2}]", "1 of 2 cells left out: x=a,n=2"),
        ("/var sizes: [1]", "fields with other values: sizes"),
        ("/var sizes: [1]", "1 of 2 cells left out: x=a,n=2"),
        ("/var text: other", "fields with other values: text, matrix.workload.env.TEXT"),
        ("/var $.matrix.timeouts.run: 90", "fields with other values: matrix.timeouts.run"),
        ("/var $.matrix.retries.check: 3", "fields with other values: matrix.retries.check"),
        ("/var $.matrix.checks[0].count: null", "fields with other values: matrix.checks"),
        ("/var $.matrix.checks: []", "fields with other values: matrix.checks"),
        ("/var $.matrix.jobs: 1", "fields with other values: matrix.jobs"),
        ("/var $.matrix.deadline: 9", "fields with other values: matrix.deadline"),
        ("/var $.matrix.reuse_results: 9", "fields with other values: matrix.reuse_results"),
        ("/var $.matrix.workload.log_bytes: 4096", "fields with other values: matrix.workload.log_bytes"),
        (
            "/var matrix.settings: [{when: {x: a}, timeouts: {run: 9}}]",
            "2 of 2 cells executed or judged in another way",
        ),
    ],
)
def test_a_run_that_lacks_something_says_what(commands: str, expected: str) -> None:
    text = commands if commands.startswith("/retest") else f"/test parts\n{commands}"
    assert any(each.startswith(expected) for each in differences(text)), differences(text)


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("parts smoke", "1 of 2 cells left out: x=a,n=2"),
        ("parts same", "fields with other values: ci_presets.names"),  # a project may read the names of the presets
        ("other parts", "fields with other values: matrix.target"),
    ],
)
def test_presets_and_jobs_are_compared(test: str, expected: str) -> None:
    assert expected in differences(f"/test {test}")


def test_one_partial_run_among_full_runs_makes_the_comment_partial() -> None:
    assert differences("/test parts\n/test parts\n/skip prepare") == ["phases left out: prepare"]


@pytest.mark.parametrize(
    "description",
    [
        "/var $.matrix.skip: [{when: {x: a}, reason: r}]",
        f"/var $.matrix.quarantine: [{{{EXCUSE}}}]",
        "/var sizes: [1]",
        "/cells x=a,n=1",
    ],
)
def test_the_description_of_a_pull_request_is_compared_too(description: str) -> None:
    assert differences("/test parts", description)


def test_a_shard_alone_is_not_the_full_run() -> None:
    (text,) = differences("/test parts", shard=(1, 2))
    assert "cells left out" in text


def test_a_full_run_that_cannot_be_planned_makes_each_other_run_partial(workspace: Workspace) -> None:
    file = workspace.directory / "config/parts.yaml"
    file.write_text(file.read_text().replace("x: [a, b], n", "x: [], n"))
    (text,) = differences("/test parts more")
    assert text.startswith("the runs cannot be compared with the full run:")
    assert "the axis has no values" in text


def test_a_fault_of_a_comment_makes_it_partial() -> None:
    comment, faults = slash.read("/test parts\n/unknown", ["parts"])
    assert partial_runs.differences(comment, Settings("parts"), faults)


def test_any_error_of_a_project_makes_a_run_partial(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(request: RunRequest) -> None:
        raise KeyError(request.project)

    monkeypatch.setattr(run_requests, "configure", broken)
    assert "KeyError: 'parts'" in differences("/test parts")[0]


def test_an_entry_that_expires_after_the_comment_is_the_same_in_each_job() -> None:
    late = dt.datetime(2099, 2, 1, tzinfo=dt.UTC)
    (text,) = differences("/test parts\n/quarantine x=a,n=2 broken", time=late)
    assert text == "1 of 2 cells put into quarantine: x=a,n=2"


def test_the_comparison_reads_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VAULT", raising=False)
    assert differences("/test parts\n/var matrix.skip: []") == []
