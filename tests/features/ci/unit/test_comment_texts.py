"""The comment of a workflow run shows texts from outside as texts, and never exceeds the limit of GitHub."""

from __future__ import annotations

from dataclasses import replace

import pytest

from toolbox.features.ci import comment_texts, retest_records, run_comment
from toolbox.features.ci.run_comment import LONGEST, WorkflowRun

PART = WorkflowRun("small", "on_demand", "77", "https://github.com/owner/name/actions/runs/77")


def test_a_refusal_is_a_text() -> None:
    text = comment_texts.refused(PART, "error: <img src=x> @everyone **no**\n\n  comment again\n")
    assert text == (
        "**Topgallant**: `small` does not run ([workflow `on_demand`](https://github.com/owner/name/actions/runs/77))"
        "\n\n<pre>error: &lt;img src=x&gt; @everyone **no**&#10;  comment again</pre>"
    )


@pytest.mark.parametrize(
    ("result", "words"),
    [("success", "passed"), ("failure", "did not pass"), ("cancelled", "was cancelled"), ("skipped", "was skipped")],
)
def test_the_end_has_the_report(result: str, words: str) -> None:
    text = comment_texts.ended(PART, result, "<h2>report</h2>", [])
    assert f"`small` {words}" in text
    assert text.endswith("\n\n<h2>report</h2>")


@pytest.mark.parametrize("report", ["", "x" * LONGEST])
def test_a_report_that_is_missing_or_too_long_is_left_out(report: str) -> None:
    assert len(comment_texts.ended(PART, "failure", report, None)) < 500


def test_a_partial_run_says_why_and_how_its_status_is_named() -> None:
    part = replace(PART, differences=tuple(f"<b> {number}\n\n```" for number in range(9)))
    text = comment_texts.ended(part, "success", "<h2>report</h2>", [])
    assert "so its commit status is named `small on_demand (partial)`:\n\n<pre>&lt;b&gt; 0 ```&#10;" in text
    assert text.endswith("&lt;b&gt; 5 ```&#10;and 3 more</pre>\n\n<h2>report</h2>")


def test_the_longest_comment_of_a_partial_run_fits() -> None:
    part = replace(PART, differences=("'" * 500,) * 9)
    report = "x" * comment_texts.MAX_DETAILS
    text = comment_texts.ended(part, "failure", report, [])
    assert report in text
    assert len(run_comment.body_of(part, text)) + retest_records.LONGEST < LONGEST
