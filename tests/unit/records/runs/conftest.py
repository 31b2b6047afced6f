"""Fixtures for the tests of a run on disk."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from toolbox.ground.model.events import Event
from toolbox.ground.system.redaction import Redactor
from toolbox.records.runs import steps
from toolbox.records.runs.journal import Journal
from toolbox.records.runs.recorder import Recorder
from toolbox.records.runs.steps import Step


@pytest.fixture
def events() -> list[Event]:
    """Return the list of the events that a view receives."""
    return []


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """Yield the journal of a run in `tmp_path`."""
    with Journal(tmp_path) as found:
        yield found


@pytest.fixture
def top(tmp_path: Path, events: list[Event], journal: Journal) -> Iterator[Step]:
    """Yield the top step of the run, which is the current step."""
    step = Step(tmp_path, Recorder(tmp_path, Redactor(), [events.append], journal), "top")
    with steps.entered(step):
        yield step
