"""YAML text keeps values and their types, and shows no secret."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from toolbox.ground.model import yaml_scalars, yaml_text
from toolbox.ground.model.secrets import Secret
from toolbox.ground.model.verdicts import Verdict


@pytest.mark.parametrize(
    "value",
    ["1.10", "null", "yes", "a: b", "- a", "{{ x }}", "'\"", "two\nlines\n", " led and trailed ", "☃", "", "\x1b[2J"],
)
def test_yaml_text_stays_text(value: str) -> None:
    assert yaml.safe_load(yaml_text.dump({"key": [value]})) == {"key": [value]}


@pytest.mark.parametrize("value", ["1e-4", "1e5", "12345e6", ".5e3", "-.5", 1e-5, 1e22, 0.5])
def test_what_looks_like_a_number_keeps_its_type_for_every_reader(value: str | float) -> None:
    for text in (yaml_text.dump({"key": value}), f"key: {yaml_text.dump_line(value)}"):
        for loader in (yaml.SafeLoader, yaml_scalars.Loader):
            assert yaml.load(text, Loader=loader) == {"key": value}  # both loaders are safe


def test_yaml_keeps_its_order_and_writes_no_aliases() -> None:
    shared = ["x"]
    assert yaml_text.dump({"b": shared, "a": shared}) == "b:\n- x\na:\n- x\n"


@pytest.mark.parametrize(
    "value",
    [
        {"one": 1, "true": True, "float": 1.0, "none": None, "text": "yes", "": "", "lines": "a\nb", "break": "\x85"},
        {"k" * 200: "v", "a: b": "#", 3: "3", None: "null", True: "true", 1.5: 1.5},
        {"same": 1, "other": True, "third": 1.0},
        {"k" * 200: 7, "a: b": -7, "long": 10**30, 3: 0, "10": 10},
    ],
)
def test_a_mapping_of_simple_values_is_written_as_any_mapping(value: Any) -> None:
    marked = yaml_text.dump({**value, "list": []})
    assert yaml_text.dump(value) + "list: []\n" == marked
    assert list(yaml.safe_load(yaml_text.dump(value)).items()) == list(value.items())


def test_yaml_writes_enumeration_members_and_paths_as_text(tmp_path: Path) -> None:
    assert yaml.safe_load(yaml_text.dump([Verdict.PASSED, tmp_path])) == ["passed", str(tmp_path)]


def test_yaml_never_shows_a_secret() -> None:
    secrets = {"written": Secret("hunter2", reference="*$@a.b"), "given": Secret("hunter2")}
    assert yaml.safe_load(yaml_text.dump(secrets)) == {"written": "*$@a.b", "given": "***"}


@pytest.mark.parametrize(
    "value",
    [
        "text", "1.10", "null", "yes", "", " led and trailed ", "a: b", "- a", "#x", "'\"", "two\nlines\n",
        "\x85 \u2028", "☃", "\x1b[2J", "... ", "---", "a" * 500, 1, 1.5, True, None, [], {}, ["a", ["b\nc"]],
        {"k": {"l": [1, "2"]}},
    ],
)  # fmt: skip
def test_a_value_on_one_line_of_yaml_is_read_as_it_was(value: Any) -> None:
    line = yaml_text.dump_line(value)
    assert yaml.safe_load(line) == value
    assert len(line.splitlines()) <= 1


def test_a_value_on_one_line_of_yaml_never_shows_a_secret() -> None:
    line = yaml_text.dump_line({"given": Secret("hunter2"), "written": Secret("hunter2", reference="*$@a.b")})
    assert yaml.safe_load(line) == {"given": "***", "written": "*$@a.b"}
