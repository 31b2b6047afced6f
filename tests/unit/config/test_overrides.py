"""The text of `--overrides` is a mapping or the names of files."""

from pathlib import Path
from typing import Any

import pytest

from toolbox.config import overrides
from toolbox.model.errors import ConfigurationError


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
    with pytest.raises(ConfigurationError, match=r"^--overrides:\d+:\d+: broken YAML: "):
        overrides.parse(text)
