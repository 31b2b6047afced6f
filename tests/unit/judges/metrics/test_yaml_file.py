"""The source `yaml_file` reads a metric from a YAML file."""

from pathlib import Path

import pytest

from toolbox.judges.metrics.yaml_file import Source

DOCUMENT = """
step: {time: &time {median: 0.25}}
again: *time
losses: [9, 3, 1.5]
mixed: [1, text]
8: {hidden: 7}
nan: .nan
text: "1"
exponent: 1e-3
octal: 0123
minutes: 1:30
date: 2026-01-01
"""
LAUGHS = "a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return the directory of the document."""
    (tmp_path / "m.yaml").write_text(DOCUMENT)
    return tmp_path


@pytest.mark.parametrize(
    ("path", "value"),
    [("step.time.median", 0.25), ("again.median", 0.25), ("losses[0]", 9.0), ("8.hidden", 7.0), ("exponent", 0.001)],
)
def test_a_number_is_found_by_its_path(directory: Path, path: str, value: float) -> None:
    found = Source(file="m.yaml", path=path).read(directory)
    assert (found, type(found)) == (value, float)


def test_a_list_is_reduced_by_its_aggregate(directory: Path) -> None:
    assert Source(file="m.yaml", path="losses", aggregate="min").read(directory) == 1.5
    assert Source(file="m.yaml", path="losses", aggregate="each", warmup=1).read(directory) == (3.0, 1.5)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nan", "nan in m.yaml must be a finite number, not nan"),
        ("text", "text in m.yaml must be a finite number, not '1'"),
        ("octal", "octal in m.yaml must be a finite number, not '0123'"),
        ("minutes", "minutes in m.yaml must be a finite number, not '1:30'"),
        ("date", "date in m.yaml must be a finite number, not 2026-01-01"),
        ("step", "step in m.yaml must be a finite number, not a dict"),
        ("losses", "losses in m.yaml must be a finite number, not a list: set `aggregate` to reduce the list"),
        ("step.mean", "m.yaml has no step.mean"),
    ],
)
def test_a_value_that_is_not_a_finite_number_is_shown(directory: Path, path: str, message: str) -> None:
    with pytest.raises(ValueError, match=r"m\.yaml") as caught:
        Source(file="m.yaml", path=path).read(directory)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "content",
    [
        b"a: [", b"\xff\xfe\xff", b"\x01", b"a: *b", b"a: !custom 1", b"a: 1\n---\na: 2", b'a: !!int ""', b"9" * 5000,
        b"a: !!timestamp x", b"a: 2026-99-99", b"a: !!bool x", b"[" * 100_000, b"{[]: 1}", b'"\\UFFFFFFFF"',
    ],
    ids=range(14),
)  # fmt: skip
def test_a_file_that_is_not_yaml_is_refused_on_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.yaml").write_bytes(content)
    with pytest.raises(ValueError, match=r"^m\.yaml is not YAML: \S.*$"):
        Source(file="m.yaml", path="a").read(tmp_path)


@pytest.mark.parametrize("content", ["a: &a [*a]", LAUGHS + "a: *a59", "a: [0x" + "f" * 5000 + "]"], ids=range(3))
def test_endless_values_are_refused_at_once(tmp_path: Path, content: str) -> None:
    (tmp_path / "m.yaml").write_text(content)
    with pytest.raises(ValueError, match=r"a\[0\] in m\.yaml must be a finite number, not (a list|inf)"):
        Source(file="m.yaml", path="a", aggregate="sum").read(tmp_path)
