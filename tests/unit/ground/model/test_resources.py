"""The labels of remote resources are valid everywhere, and name their owner and their expiry."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.hostile_texts import texts
from toolbox.ground.model import resources
from toolbox.ground.model.resources import Owner

OWNER = Owner("20261121-011343-x7k2", "tpu_ci", "ann", "laptop")
LABEL = re.compile(r"([a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?)?")


def test_the_labels_name_the_owner() -> None:
    assert OWNER.labels() == {
        "topgallant-run": "20261121-011343-x7k2",
        "topgallant-project": "tpu_ci",
        "topgallant-user": "ann",
        "topgallant-host": "laptop",
    }
    assert Owner.from_labels(OWNER.labels()) == OWNER


def test_a_label_contains_the_expiry() -> None:
    labels = OWNER.labels(ttl=3600, prefix="topgallant.dev/")
    expiry = resources.expiry_of(labels, prefix="topgallant.dev/")
    assert expiry is not None
    assert abs(expiry - datetime.now(UTC) - timedelta(hours=1)) < timedelta(minutes=1)


@pytest.mark.parametrize("text", ["", "x", "9" * 40, "-1", "1e99"])
def test_a_forged_expiry_does_not_crash(text: str) -> None:
    assert resources.expiry_of({"topgallant-expires": text}) in {None, datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)}


@pytest.mark.parametrize("text", [*texts(Path("/pwned")), "A" * 200, "-a-", "Ann@Host.example.com", "x" * 62 + "-y"])
def test_every_text_becomes_a_valid_label(text: str) -> None:
    assert LABEL.fullmatch(resources.label_value(text))


def test_only_the_owner_owns_a_resource() -> None:
    assert OWNER.owns({**OWNER.labels(ttl=1), "more": "labels"})
    assert not OWNER.owns(Owner("another-run", "tpu_ci", "ann", "laptop").labels())
    assert not OWNER.owns({})
    assert Owner.from_labels({"topgallant-run": "x"}) is None
