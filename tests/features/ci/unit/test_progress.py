"""Updates of a comment never delay a run, never overtake one another, and never follow the final text."""

from __future__ import annotations

import queue
import threading

import pytest

from toolbox.features.ci.progress import Progress

SECONDS = 30.0


class Forge:
    """Receives texts. A text is only sent when the test allows it."""

    def __init__(self) -> None:
        self.begun: queue.Queue[str] = queue.Queue()
        self.allowed = threading.Semaphore(0)
        self.texts: list[str] = []

    def publish(self, text: str) -> None:
        self.begun.put(text)
        assert self.allowed.acquire(timeout=SECONDS)
        self.texts.append(text)


def test_a_run_is_not_delayed_and_only_the_newest_text_is_sent() -> None:
    forge = Forge()
    progress = Progress(forge.publish, pause=0.0)
    progress.show("1")
    assert forge.begun.get(timeout=SECONDS) == "1"
    for text in ("2", "3", "4"):
        progress.show(text)  # returns although the forge has not answered
    forge.allowed.release(2)
    assert forge.begun.get(timeout=SECONDS) == "4"
    assert progress.finish()
    assert forge.texts == ["1", "4"]


def test_the_final_text_follows_an_update_that_is_going_on() -> None:
    forge = Forge()
    progress = Progress(forge.publish, pause=0.0)
    progress.show("half")
    assert forge.begun.get(timeout=SECONDS) == "half"
    progress.show("never sent")
    ends = threading.Thread(target=progress.finish, args=("passed",))
    ends.start()
    forge.allowed.release(2)
    ends.join(SECONDS)
    progress.show("too late")
    assert forge.texts == ["half", "passed"]


def test_after_an_update_the_next_one_waits_but_the_end_does_not() -> None:
    forge = Forge()
    forge.allowed.release(10)
    progress = Progress(forge.publish, pause=1e6)
    progress.show("1")
    assert forge.begun.get(timeout=SECONDS) == "1"
    progress.show("2")
    assert progress.finish("end", timeout=SECONDS)
    assert forge.texts == ["1", "end"]


def test_a_forge_that_does_not_answer_does_not_hold_up_the_end(caplog: pytest.LogCaptureFixture) -> None:
    forge = Forge()
    progress = Progress(forge.publish, pause=0.0)
    progress.show("1")
    assert forge.begun.get(timeout=SECONDS) == "1"
    assert progress.finish(timeout=0.01) is False
    assert "has not answered an update" in caplog.text
    forge.allowed.release()
    assert progress.finish()
    assert forge.texts == ["1"]


def test_an_error_of_the_forge_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    sent: queue.Queue[str] = queue.Queue()

    def publish(text: str) -> None:
        sent.put(text)
        raise RuntimeError("no")

    progress = Progress(publish, pause=0.0)
    for text in ("1", "2"):
        progress.show(text)
        assert sent.get(timeout=SECONDS) == text
    assert progress.finish("end")
    assert sent.get(timeout=SECONDS) == "end"
    assert [record.levelname for record in caplog.records].count("WARNING") == 1
