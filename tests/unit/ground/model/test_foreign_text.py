"""Untrusted text controls neither a terminal nor a CI system."""

import json

import pytest

from toolbox.ground.model.foreign_text import clean, printable, printable_json

STEERING = {
    "colour": "\x1b[31m",
    "title": "\x1b]0;title\x07",
    "link": "\x1b]8;;http://x\x1b\\\\",
    "C1 sequence": "\x9b31m",
    "device control": "\x1bP1$r\x1b\\\\",
    "bell": "\x07",
    "backspace": "\x08",
    "carriage return": "\r",
    "delete": "\x7f",
    "override of direction": "\u202e",
    "isolate": "\u2066",
    "mark of direction": "\u200f",
    "half of a character": "\udcff",
}
COMMANDS = [
    "::stop-commands::x",
    "  ::add-mask::a",
    "\u00a0\t::error file=x::y",
    "first\n::set-output name=a::b",
    "##[group]x",
    "text ##[add-mask]a",
    "##vso[task.setvariable variable=a]b",
    "\x1b[1m::debug::x",
    "\r::debug::x",
    "\x00##\x00[debug]x",
]


@pytest.mark.parametrize("text", STEERING.values(), ids=STEERING)
def test_control_characters_are_removed(text: str) -> None:
    shown = clean(f"a{text}b\tc\nd")
    assert shown.isascii()
    assert all(character.isprintable() or character in "\t\n" for character in shown)


@pytest.mark.parametrize("text", COMMANDS)
def test_a_command_for_a_ci_system_is_disabled(text: str) -> None:
    shown = printable(text)
    assert not [line for line in shown.splitlines() if line.strip().startswith("::")]
    assert "##[" not in shown
    assert "##vso[" not in shown


@pytest.mark.parametrize("text", ["a::b", "std::vector", ": x", "# [a]", "##", "x ::y", "\u2603 caf\u00e9"])
def test_other_text_stays_as_it_is(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize("text", [*STEERING.values(), *COMMANDS])
def test_printable_json_has_the_same_data_without_control_characters(text: str) -> None:
    shown = printable_json(json.dumps({"a": [text]}, ensure_ascii=False, indent=2))
    assert json.loads(shown) == {"a": [text]}
    assert printable(shown) == shown
