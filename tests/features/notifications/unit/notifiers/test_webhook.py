"""The document for webhooks, and its signature by the rules of Standard Webhooks."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.features.notifications.unit.notifiers.test_slack import HOSTILE, NOTIFICATION
from toolbox.features.notifications.notifiers import webhook
from toolbox.ground.model.errors import ConfigurationError
from toolbox.ground.model.notifications import FailedStep
from toolbox.ground.model.secrets import Secret
from toolbox.ground.model.verdicts import Verdict


def test_the_document_has_its_documented_fields() -> None:
    document = json.loads(json.dumps(webhook.document(NOTIFICATION)))
    assert (document["version"], document["type"]) == (1, "topgallant.run.failure")
    assert document["data"] == {
        "project": "training",
        "presets": ["nightly", "h100"],
        "job": "nightly / run",
        "title": "training (nightly, h100) fails",
        "run": "20261121-011343-x7k2",
        "earlier_run": None,
        "verdict": "failed",
        "cause": "product",
        "message": "",
        "seconds": 61,
        "revision": "0f3a",
        "url": "https://ci.lab/job/7",
        "counts": {"passed": 3, "failed": 1},
        "failures": [
            {"name": "model=small,batch=8", "verdict": "failed", "cause": "product", "message": "exit status 7"}
        ],
        "failure_count": 1,
    }


def test_long_texts_and_lists_are_truncated() -> None:
    failures = [FailedStep(HOSTILE, Verdict.FAILED, None, HOSTILE)] * 5000
    text = json.dumps(webhook.document(replace(NOTIFICATION, failures=failures)))
    assert len(text) < 400_000
    assert json.loads(text)["data"]["failure_count"] == 5000


def test_the_signature_is_that_of_the_reference_libraries() -> None:
    # the example in the tests of the libraries at https://github.com/standard-webhooks/standard-webhooks
    key = Secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = {"webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "webhook-timestamp": "1614265330"}
    signature = webhook.signature(key, headers, b'{"test": 2432232314}')
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_key_that_is_not_base64_is_not_shown() -> None:
    notifier = webhook.Notifier(url=Secret("https://hooks.lab/x"), signing_key=Secret("whsec_s3cr3t!"))
    with pytest.raises(ConfigurationError, match="the signing key has no base64") as caught:
        notifier.verify()
    assert "s3cr3t" not in str(caught.value)
