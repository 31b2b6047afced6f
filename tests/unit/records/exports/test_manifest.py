"""Files are exported under names that artifacts and file systems accept, and get their own names back."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from toolbox.records.exports import manifest
from toolbox.records.exports.manifest import FileList

REFUSED = re.compile(r'[":<>|*?\r\n]|[. ](?=/|\Z)')  # what GitHub's upload-artifact and Windows refuse
PARTS = st.lists(st.text(st.sampled_from('ab:%2"*.3A /<?'), min_size=1), min_size=1)
FILE = {"size": 0, "sha256": "0" * 64}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("files/trace 12:30:01.json", "files/trace 12%3A30%3A01.json"),
        ('a"b/<c>|*?', "a%22b/%3Cc%3E%7C%2A%3F"),
        ("dot./space /x", "dot%2E/space%20/x"),
        ("100%.txt", "100%.txt"),
        ("a%3Ab", "a%253Ab"),
        ("plain, with=ümlaut.log", "plain, with=ümlaut.log"),
    ],
)
def test_a_name_has_a_portable_form(name: str, expected: str) -> None:
    assert manifest.portable(name) == expected


@given(PARTS, PARTS)
def test_two_names_never_have_the_same_portable_form(one: list[str], other: list[str]) -> None:
    first, second = "/".join(one), "/".join(other)
    assert not REFUSED.search(manifest.portable(first))
    assert (manifest.portable(first) == manifest.portable(second)) == (first == second)


@pytest.mark.parametrize(
    "renamed",
    [{"a%3Ab": "../x"}, {"a%3Ab": "c"}, {"a": "a"}, {"%2E%2E": ".."}, {"a%2Fb": "a/b"}, {"a": "/etc/passwd"}, {"a": 1}],
)
def test_a_forged_name_is_refused(renamed: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        FileList.model_validate({"files": dict.fromkeys(renamed, FILE), "renamed": renamed})


def test_a_file_cannot_be_inside_a_renamed_file() -> None:
    with pytest.raises(ValidationError, match="a file and a folder of the same name"):
        FileList.model_validate({"files": dict.fromkeys(["a%3A", "a:/b"], FILE), "renamed": {"a%3A": "a:"}})


@pytest.mark.parametrize("files", [["a%3Ab", "a:b"], ["c"]])
def test_a_path_is_given_to_one_file(files: list[str]) -> None:
    with pytest.raises(ValidationError, match="the same path in the run, or a path of no file"):
        FileList.model_validate({"files": dict.fromkeys(files, FILE), "renamed": {"a%3Ab": "a:b"}})
