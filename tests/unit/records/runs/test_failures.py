"""The signature of a failure is the same for the same failure in different cells."""

import pytest

from toolbox.records.runs.failures import signature

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {} GiB. GPU {} has {} GiB ({:#x})"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (OOM.format(2.5, 0, 79.1, 140), OOM.format(20, 7, 39, 99999)),
        ("loss 1.5e-3 is over 0.001", "loss 7 is over 0.5"),
        ("no file /tmp/a/b.json", "no file ../c/files/d.json"),
        ("failed at 2026-11-21T01:13:43.5Z", "failed at 2027-01-02 03:04:05"),
        ("failed at 01:13:43", "failed at 23:59:59.999"),
        ("job 123e4567-e89b-12d3-a456-426614174000", "job 00000000-e89b-12d3-a456-426614174fff"),
        ("commit 0a1b2c3d4e", "commit ffee00112233"),
        ("connect 10.0.0.1:8470: refused", "connect 192.168.7.20:1: refused"),
        ("rank3: crash\n\n  at step17", "rank12: crash\nat step4"),
    ],
)
def test_a_signature_omits_parts_that_differ_between_cells(one: str, other: str) -> None:
    assert signature("product", one, {}) == signature("product", other, {})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("product", "x"), ("check", "x")),
        (
            ("product", "exit_status: exit status 1, expected 0"),
            ("product", "exit_status: exit status 137, expected 0"),
        ),
        (("product", "killed by signal 9"), ("product", "killed by signal 11")),
        (("product", "out of memory"), ("product", "no such device")),
        (("check", "metric: step_time is 3 s"), ("check", "files: 3 found")),
    ],
)
def test_another_cause_check_status_or_word_gives_another_signature(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    assert signature(*one, {}) != signature(*other, {})


def test_a_signature_replaces_the_labels_of_the_cell() -> None:
    one = signature("product", "cannot load large", {"model": "large", "b": "a"})
    assert (
        one == signature("product", "cannot load small", {"model": "small", "b": "c"}) == "product: cannot load <model>"
    )


def test_an_axis_name_with_a_backslash_is_not_an_escape() -> None:
    assert signature(None, "cannot load large", {r"\path": "large"}) == r"cannot load <\path>"


def test_a_signature_is_short_enough_to_show() -> None:
    assert len(signature("product", "word " * 1000, {})) < 220
    assert signature(None, "", {}) == ""
    assert signature("timeout", " ", {}) == "timeout"
