"""What the tests of a run on disk share."""

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
    """What a view is told of."""
    return []


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """The journal of a run in the test's directory."""
    with Journal(tmp_path) as found:
        yield found


@pytest.fixture
def top(tmp_path: Path, events: list[Event], journal: Journal) -> Iterator[Step]:
    """The top of that run, as the current step."""
    step = Step(tmp_path, Recorder(tmp_path, Redactor(), [events.append], journal), "top")
    with steps.entered(step):
        yield step
