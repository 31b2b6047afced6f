"""The arguments of a toolbox command are rendered from a configuration and a template."""

from pathlib import Path
from typing import Any

import pytest

from toolbox.config.command_args import Template
from toolbox.config.configuration import Configuration
from toolbox.config.document import Document
from toolbox.ground.model.errors import UsageError
from toolbox.orchestration import from_config
from toolbox.orchestration.from_config import Call


@pytest.mark.parametrize(
    ("prefix", "suffix", "key"),
    [
        (None, None, "cluster deploy"),
        ("sutest", None, "sutest/cluster deploy"),
        (None, "gpu", "cluster deploy/gpu"),
        ("sutest", "gpu", "sutest/cluster deploy/gpu"),
        ("", "", "cluster deploy"),
    ],
)
def test_a_call_names_its_key(prefix: str | None, suffix: str | None, key: str) -> None:
    assert Call("cluster", "deploy", prefix, suffix).key == key


def test_extra_arguments_replace_those_of_the_template(tmp_path: Path) -> None:
    file = tmp_path / "args.yaml.j2"
    file.write_text("p/cluster deploy:\n  name: SET_AT_RUNTIME\n  tag: {{ tag }}\n  size: 1\n")
    call = Call("cluster", "deploy", prefix="p", extra={"name": "x: y", "more": None})
    found = from_config.arguments(call, Configuration(Document({"tag": "1.10"}, "f")), Template(file))
    assert found == {"name": "x: y", "tag": "1.10", "size": 1, "more": None}


def test_one_argument_is_returned_by_name() -> None:
    assert from_config.argument({"name": None}, "name", "cluster deploy") is None


def test_a_missing_argument_suggests_a_similar_name() -> None:
    with pytest.raises(UsageError, match=r"^`cluster deploy` has no argument `nmae`: did you mean name\?$"):
        from_config.argument({"name": 1, "tag": 2}, "nmae", "cluster deploy")


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"a": "x", "b": None, "c": [1, {"k": "v"}]},
        {"a": "not SET_AT_RUNTIME alone"},
        {"SET_AT_RUNTIME": 1},
    ],
)
def test_arguments_without_placeholders_are_accepted(values: dict[str, Any]) -> None:
    from_config.refuse_placeholders("cluster deploy", values)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"name": "SET_AT_RUNTIME", "b": 1}, "--name"),
        ({"a": 1, "list": ["x", ["SET_AT_RUNTIME"]]}, "--list"),
        ({"map": {"k": {"l": "SET_AT_RUNTIME"}}}, "--map"),
        ({"tuple": ("SET_AT_RUNTIME",)}, "--tuple"),
        ({"a": "SET_AT_RUNTIME", "b": "SET_AT_RUNTIME"}, "--a, --b"),
    ],
)
def test_unset_placeholders_are_refused_by_name(values: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError) as caught:
        from_config.refuse_placeholders("cluster deploy", values)
    assert str(caught.value).startswith(f"cluster deploy: {named} is SET_AT_RUNTIME: ")
