"""OWNERS files of Prow name people by logins and aliases."""

from __future__ import annotations

import pytest

from toolbox.ground.model import owners_file


def test_approvers_and_reviewers_are_owners() -> None:
    assert owners_file.logins("approvers: [Alice, bob]\nreviewers: [carol]\nlabels: [x]\n") == {"alice", "bob", "carol"}


def test_aliases_stand_for_people() -> None:
    aliases = "aliases:\n  Leads: [alice, Bob]\n  other: [mallory]\n"
    assert owners_file.logins("approvers: [leads, carol]\n", aliases) == {"alice", "bob", "carol"}


def test_the_filter_for_all_files_counts_and_others_do_not() -> None:
    text = 'filters: {".*": {approvers: [alice]}, "\\\\.md$": {approvers: [mallory]}}\n'
    assert owners_file.logins(text) == {"alice"}


@pytest.mark.parametrize("text", ["", "[]", "7", "approvers: alice", "approvers: {alice: 1}", "approvers: null"])
def test_other_content_names_nobody(text: str) -> None:
    assert owners_file.logins(text) == frozenset()


@pytest.mark.parametrize("text", ["approvers: [", "a: !!python/object:os.system x", "[" * 5000, "x" * 300_000])
def test_a_text_that_is_not_plain_yaml_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not YAML|has more than"):
        owners_file.logins(text)
