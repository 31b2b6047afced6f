"""Fixtures for the tests of a run on disk."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from toolbox.model.events import Event
from toolbox.runs import steps
from toolbox.runs.journal import Journal
from toolbox.runs.recorder import Recorder
from toolbox.runs.steps import Step
from toolbox.system.redaction import Redactor


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
