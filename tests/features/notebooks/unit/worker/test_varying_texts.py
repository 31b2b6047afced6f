"""What varies between two executions is replaced, and no expression of a configuration can stop the worker."""

from __future__ import annotations

import pytest

from toolbox.features.notebooks.worker import varying_texts
from toolbox.features.notebooks.worker.varying_texts import PatternError


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("<object at 0x7f3a>", "<object at 0xffffb2c4d5e6>"),
        ("pointer 0x7f3a00001111", "pointer 0x7f3b00002222"),
        ("id 123e4567-e89b-12d3-a456-426614174000", "id 00000000-0000-4000-8000-000000000000"),
        ("2026-11-23", "1999-01-01"),
        ("2026-11-23T10:11:12.123456+00:00", "2026-11-24 01:02:03"),
        ("Mon Nov 23 23:08:30 2026", "Tue Dec  1 01:02:03 2026"),
        ("Mon, 23 Nov 2026", "Tuesday, 1 December 2026"),
        ("23/11/2026", "1/12/2027"),
        ("at 10:11:12", "at 9:08:07.5"),
        ("user 3 μs, sys: 1e+03 ns, total: 4 μs", "user 1min 3s, sys: 0 ns, total: 2 s"),
        ("(mean ± std. dev. of 7 runs, 10,000,000 loops each)", "(mean ± std. dev. of 5 runs, 1 loop each)"),
        ("took 1.5 seconds", "took 20 ms"),
        ("saved /tmp/tmpab12/model.pt", "saved /tmp/tmpzz/x/y"),
        ("/private/var/folders/ab/T/x.csv", "/tmp/y.csv"),
        ("/tmp/ipykernel_123/456.py:1: UserWarning", "/tmp/ipykernel_9/8.py:1: UserWarning"),
        ("100%|###| 10/10 [00:00<00:00, 123.45it/s]", "100%|###| 10/10 [01:02:03<00:00, 1.2s/it]"),
        ("Cell In[3], line 1", "Cell In[17], line 1"),
        ('<td id="T_ab12c_row0_col0">', '<td id="T_99999_row0_col0">'),
    ],
)  # fmt: skip
def test_what_always_varies_is_equal(first: str, second: str) -> None:
    assert varying_texts.without_defaults(first) == varying_texts.without_defaults(second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("accuracy 0.97", "accuracy 0.98"),
        ("shape (3, 4)", "shape (3, 5)"),
        ("0x1f", "0x2f"),
        ("10 samples", "11 samples"),
        ("loss 1e-3", "loss 1e-4"),
        ("/home/a", "/home/b"),
        ("1:2", "1:3"),
        ("x[1]", "x[2]"),
        ("10 items/s", "11 items/s"),
    ],
)
def test_results_stay_different(first: str, second: str) -> None:
    assert varying_texts.without_defaults(first) != varying_texts.without_defaults(second)


@pytest.mark.parametrize(
    "text",
    [
        "1" * 200_000,
        "1," * 100_000,
        "[0:00<" * 30_000,
        "/tmp/" * 40_000,
        "Mon " * 50_000,
        "1-" * 100_000,
        "at 0x" * 40_000,
    ],
)
def test_long_texts_take_linear_time(text: str) -> None:
    varying_texts.without_defaults(text)


def test_replacements_of_a_configuration_are_applied_in_their_order() -> None:
    patterns = [(r"seed=(\d+)", r"seed=<\1>"), ("<7>", "seven")]
    assert varying_texts.configured_replacements(["seed=7", "", "é 数"], patterns) == ["seed=seven", "", "é 数"]


def test_an_expression_that_never_ends_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(varying_texts, "PATTERN_SECONDS", 0.5)
    with pytest.raises(PatternError, match=r"did not end within 0\.5 s"):
        varying_texts.configured_replacements(["a" * 1000 + "b"], [("(a+)+c", "x")])


def test_replacements_that_need_too_much_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(varying_texts, "PATTERN_SECONDS", 120.0)
    doubling = [(".+", r"\g<0>\g<0>")] * 50
    with pytest.raises(PatternError, match="too much memory"):
        varying_texts.configured_replacements(["x" * 100], doubling)


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        ([("(", "")], "not a valid expression"),
        ([("a", r"\2")], "not a valid expression"),
        ([("a", r"\g<name>")], "not a valid expression"),
        ([("a", "")] * 51, "50 expressions"),
        ([("a" * 1001, "")], "1000 characters"),
        ([("a", "b" * 1001)], "1000 characters"),
    ],
)
def test_expressions_that_cannot_be_used_are_refused(patterns: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(PatternError, match=message):
        varying_texts.configured_replacements(["text"], patterns)
