"""The file with an event is limited in size, and its content is checked."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from toolbox.ground.model.errors import UsageError
from toolbox.ground.system import event_files
from toolbox.ground.system.event_files import Event


class Model(BaseModel):
    number: int
    text: str


def test_an_event_is_read_from_the_file_that_a_variable_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "event").write_text('{"number": 7, "text": "\\u00e9", "other": {}}')
    monkeypatch.setenv("EVENT", str(tmp_path / "event"))
    assert event_files.read("EVENT").parsed(Model) == Model(number=7, text="é")


def test_a_missing_variable_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"\$NO_SUCH_VARIABLE is not set"):
        event_files.read("NO_SUCH_VARIABLE")


@pytest.mark.parametrize("place", ["missing", "."], ids=["missing", "a folder"])
def test_a_path_that_is_not_a_file_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.setenv("EVENT", str(tmp_path / place))
    with pytest.raises(UsageError, match=r"\(\$EVENT\) (cannot be read: No such file|is not a file)"):
        event_files.read("EVENT")


def test_only_the_beginning_of_a_huge_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "event").open("wb") as file:
        file.truncate(1 << 40)
    monkeypatch.setenv("EVENT", str(tmp_path / "event"))
    event = event_files.read("EVENT")
    assert len(event.content) == event_files.LARGEST + 1
    with pytest.raises(UsageError, match="has more than 8 MiB"):
        event.parsed(Model)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"number": "7", "text": ""}', "number: must be a valid integer"),
        ('{"number": 7}', "text: "),
        ("nonsense", "Invalid JSON"),
        ("[" * 10_000, "Invalid JSON"),
        (b"\xff", "Invalid JSON"),
    ],
)
def test_content_of_another_form_is_an_error_with_the_field(content: bytes | str, message: str) -> None:
    with pytest.raises(UsageError, match=f"the event is not as expected: {message}"):
        Event(content, "the event").parsed(Model)
