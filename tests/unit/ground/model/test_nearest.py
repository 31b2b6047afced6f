"""Messages about an unknown name offer the most similar known names."""

import pytest

from toolbox.ground.model.nearest import did_you_mean, misspelled, nearest


def test_the_most_similar_name_comes_first() -> None:
    assert nearest("capture_stat", ["capture", "capture_state", "cluster"]) == ["capture_state", "capture"]


def test_no_more_names_than_the_limit() -> None:
    assert len(nearest("aaaa", ["aaab", "aaac", "aaad", "aaae"], limit=2)) == 2


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [
        ("lihgt", ["light", "gpu"], "did you mean light?"),
        ("zzz", ["light", "gpu"], "the presets are gpu, light"),
        ("zzz", ["gpu", "gpu"], "the presets are gpu"),
        ("zzz", [], "there are no presets"),
        ("", ["gpu"], "the presets are gpu"),
    ],
)
def test_near_names_go_before_all_names(name: str, known: list[str], hint: str) -> None:
    assert did_you_mean(name, known, label="presets") == hint


def test_two_near_names_are_both_offered() -> None:
    assert (
        did_you_mean("capture_stat", ["capture", "capture_state"], label="commands")
        == "did you mean capture_state or capture?"
    )


def test_a_long_list_is_truncated_with_the_number_of_omitted_names() -> None:
    hint = did_you_mean("zzz", [f"n{index:02}" for index in range(20)], label="names", most=3)
    assert hint == "the names are n00, n01, n02 and 17 more"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("leases", "lease"),
        ("machne", "machine"),
        ("machineset", None),
        ("compute", None),
        ("lease", "lease"),
        ("", None),
    ],
)
def test_a_misspelling_is_distinguished_from_another_word(name: str, meant: str | None) -> None:
    assert misspelled(name, ["lease", "machine", "compare"]) == meant
