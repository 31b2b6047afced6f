"""The text of `--overrides` is a mapping or the names of files."""

from pathlib import Path
from typing import Any

import pytest

from toolbox.config import overrides
from toolbox.ground.model.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "files", "values"),
    [
        (None, (), {}),
        ("", (), {}),
        ("  ", (), {}),
        ("{}", (), {}),
        ("{a.b: 1, c: '1.10'}", (), {"a.b": 1, "c": "1.10"}),
        (" {a: {b: null}}", (), {"a": {"b": None}}),
        ("{8: x}", (), {"8": "x"}),
        ("one.yaml", ("one.yaml",), {}),
        ("one.yaml, dir/two.yaml,", ("one.yaml", "dir/two.yaml"), {}),
    ],
)
def test_overrides_are_a_mapping_or_the_names_of_files(
    text: str | None, files: tuple[str, ...], values: dict[str, Any]
) -> None:
    assert overrides.parse(text) == (tuple(map(Path, files)), values)


@pytest.mark.parametrize("text", ["{a: ", "{a: 1} x", "{[1]: 2}", "{a: !!python/name:os.system }", "{a: *b}"])
def test_a_broken_mapping_names_the_flag(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^--overrides, column \d+: broken YAML: "):
        overrides.parse(text)


@pytest.mark.parametrize("text", ["2:1", "matrix.axes.ratio: [1:1, 1:2]", "a.b=1"])
def test_a_value_without_braces_is_refused_with_the_right_form(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        overrides.parse(text)
    expected = (
        f"--overrides is '{text}', which does not name files: to set a value, write --overrides='{{path: value}}'"
    )
    assert str(caught.value) == expected


def test_a_file_may_have_a_colon_in_its_name(tmp_path: Path) -> None:
    file = tmp_path / "a:1.yaml"
    file.touch()
    assert overrides.parse(str(file)) == ((file,), {})


def test_the_column_counts_from_the_beginning_of_the_flag() -> None:
    with pytest.raises(ConfigurationError, match=r"^--overrides, column 14: broken YAML: "):
        overrides.parse("{a: 'é',\n b: *c}")


def test_a_repeated_key_is_named_with_its_column(caplog: pytest.LogCaptureFixture) -> None:
    assert overrides.parse("{a: 1, a: 2}")[1] == {"a": 2}
    assert caplog.messages == ["--overrides, column 8: `a` is already set: the last value is used"]


def test_a_scalar_that_may_be_text_is_named_with_its_column(caplog: pytest.LogCaptureFixture) -> None:
    assert overrides.parse("{python: 3.10, lr: 1e-4, fast: 'on'}")[1] == {"python": 3.1, "lr": 1e-4, "fast": "on"}
    assert caplog.messages == ['--overrides, column 10: `3.10` is read as 3.1: write "3.10" for the text, or 3.1']
