"""Names may have letters and digits of any language, and nothing that hides or separates."""

import pytest

from toolbox.ground.model.names import as_name, is_name


@pytest.mark.parametrize("name", ["a", "1", "r-4.5", "größe", "数据", "डेटा", "U\u0308bung", "x=1_2", "é" * 80])
def test_letters_and_digits_of_any_language_are_a_name(name: str) -> None:
    assert is_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "a b", "../a", "a/b", "-a", ".a", "_a", "=a", "a\u202eb", "a\u200bb", "a\n", "a\0", "\ud800", "é" * 81]
)
def test_other_characters_are_not_part_of_a_name(name: str) -> None:
    with pytest.raises(ValueError, match=r"^a name consists of at most 80 letters, digits, "):
        is_name(name)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("two words", "two-words"),
        ("U\u0308bung (1)", "\u00dcbung-1-"),
        ("../数据", "数据"),
        ("_a", "a"),
        ("\u202e\0\ud800", ""),
        ("é" * 300, "é" * 80),
    ],
)
def test_a_text_becomes_a_similar_name(text: str, name: str) -> None:
    assert as_name(text) == name
