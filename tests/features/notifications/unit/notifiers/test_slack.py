"""The message for Slack keeps the limits of Block Kit, and shows foreign text as text."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from toolbox.features.notifications.notifiers import slack
from toolbox.ground.model.notifications import FailedStep, Notification, NotificationKind, Series
from toolbox.ground.model.verdicts import Cause, Verdict

FAILED = FailedStep("model=small,batch=8", Verdict.FAILED, Cause.PRODUCT, "exit status 7")
NOTIFICATION = Notification(
    "r-1-failure",
    NotificationKind.FAILURE,
    Series("training", ("nightly", "h100"), "nightly / run"),
    "20261121-011343-x7k2",
    Verdict.FAILED,
    Cause.PRODUCT,
    seconds=61,
    revision="0f3a",
    url="https://ci.lab/job/7",
    counts={"passed": 3, "failed": 1},
    failures=[FAILED],
)
HOSTILE = "<!channel> & <https://evil.example|ok> `*_~\x1b[31m\n" * 300


def texts(notification: Notification) -> list[str]:
    """Return the texts of the blocks."""
    return [block["text"]["text"] for block in slack.message(notification)["blocks"]]


def test_a_failure_names_the_verdict_the_run_and_what_failed() -> None:
    assert texts(NOTIFICATION) == [
        (
            ":red_circle: *training (nightly, h100) fails*\n"
            "failed (product) in 1 min 1 s\n"
            "cells: 3 passed, 1 failed\n"
            "run <https://ci.lab/job/7|20261121-011343-x7k2> of 0f3a"
        ),
        "• failed (product): model=small,batch=8\n`exit status 7`",
    ]


def test_a_recovery_names_the_run_that_failed() -> None:
    recovery = replace(
        NOTIFICATION, kind=NotificationKind.RECOVERY, verdict=Verdict.PASSED, cause=None, failures=(), earlier_run="r-0"
    )
    assert ":large_green_circle: *training (nightly, h100) passes again*" in texts(recovery)[0]
    assert "it failed since the run r-0" in texts(recovery)[0]


def test_hostile_texts_are_escaped_and_within_the_limits() -> None:
    steps = [FailedStep(HOSTILE, Verdict.FAILED, None, HOSTILE)] * 60
    hostile = replace(
        NOTIFICATION, series=Series(HOSTILE, (HOSTILE,)), run=HOSTILE, revision=HOSTILE, url=HOSTILE, failures=steps
    )
    message = slack.message(hostile)
    assert len(message["blocks"]) <= 50
    for text in [message["text"], *texts(hostile)]:
        assert 0 < len(text) <= 3000
        assert "<" not in text
        assert ">" not in text
        assert "\x1b" not in text
    assert texts(hostile)[-1] == "and 50 more"
    json.dumps(message)


@pytest.mark.parametrize("longest", range(1, 12))
def test_no_escape_is_cut_in_the_middle(longest: int) -> None:
    text = slack.escaped("a<b>&c", longest)
    assert len(text) <= longest
    assert "&" not in text.replace("&lt;", "").replace("&gt;", "").replace("&amp;", "")
