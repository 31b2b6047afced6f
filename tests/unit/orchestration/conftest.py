"""Fixtures for the tests of the orchestration: the top step, the events of a view, and an opened project."""

import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from toolbox.config.configuration import Configuration, Request
from toolbox.ground.model.events import Event, Note
from toolbox.ground.system.redaction import Redactor
from toolbox.orchestration import session
from toolbox.orchestration.session import Session
from toolbox.records.runs import steps
from toolbox.records.runs.recorder import Recorder
from toolbox.records.runs.steps import Step

Kind = TypeVar("Kind")


class Seen:
    """A view that records events, and can wait for a line."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._news = threading.Condition()

    def __call__(self, event: Event) -> None:
        """Record an event."""
        with self._news:
            self.events.append(event)
            self._news.notify_all()

    @property
    def lines(self) -> list[str]:
        """The texts of the notes that the view shows."""
        return [event.text for event in self.of(Note)]

    def of(self, kind: type[Kind]) -> list[Kind]:
        """Return the events of a kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def wait_for(self, line: str) -> None:
        """Wait until a line is shown."""
        with self._news:
            assert self._news.wait_for(lambda: line in self.lines, timeout=30), f"{line!r} was expected in {self.lines}"


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def top(tmp_path: Path, seen: Seen) -> Iterator[Step]:
    """Yield the top step of a run in `tmp_path`."""
    step = Step(tmp_path, Recorder(tmp_path, Redactor(), [seen]), "top")
    with steps.entered(step):
        yield step


def forget_modules() -> None:
    """Forget the imported orchestration of `tiny`, so that it is imported again as in a new process."""
    for name in [name for name in sys.modules if name.startswith("projects.tiny")]:
        del sys.modules[name]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the repository of a team, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    forget_modules()


Work = Callable[[str], Session]


@pytest.fixture
def work(tmp_path: Path, top: Step) -> Iterator[Work]:
    """Yield a function that opens a session of a project with a configuration in YAML."""
    opened = []

    def begin(text: str) -> Session:
        file = tmp_path / "project.yaml"
        file.write_text(textwrap.dedent(text))
        configuration = Configuration.load(Request(file))
        found = Session("project", configuration, tmp_path / "args.yaml.j2", tmp_path / "config.yaml")
        context = session.opened(found, top)
        opened.append(context)
        return context.__enter__()

    yield begin
    for context in reversed(opened):
        context.__exit__(None, None, None)
