"""Names of tests become names of files that stay different."""

from __future__ import annotations

import pytest

from toolbox.features.notebooks.worker import execution


def test_a_plain_name_stays() -> None:
    assert execution.file_stem("train-2.1_a") == "train-2.1_a"


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", ".hidden", "", "x" * 1000, "\ud800", "naïve"])
def test_another_name_becomes_a_name_of_a_file_in_the_same_directory(name: str) -> None:
    stem = execution.file_stem(name)
    assert "/" not in stem
    assert not stem.startswith(".")
    assert 0 < len(stem) <= 110
    assert stem != execution.file_stem(name + "b")
