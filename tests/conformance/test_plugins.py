"""Held for every check, source of metrics and contract, found as the library finds it: those of a workspace too."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from toolbox.config import contract, plugins
from toolbox.model.evidence import Evidence, Judgement, Metric, Reference
from toolbox.orchestration import projects
from toolbox.system import extensions, modules, places

KEYS = {"checks": ("Check", "check"), "metrics": ("Source", "source")}


def load(package: str, name: str) -> type[Any]:
    """Return the model of a plugin."""
    return plugins.load(package, *KEYS[package], name)


def example(model: type[BaseModel]) -> dict[str, Any]:
    """Return values for a plugin, by what its fields are: those that are required, and what a validator wants."""
    simple: dict[Any, Any] = {str: "some/text", int: 1, float: 1.0, dict[str, Any]: {"some": "text"}}
    values = {
        name: simple[field.annotation]
        for name, field in model.model_fields.items()
        if name in FILES or (field.is_required() and field.annotation in simple)
    }
    if "upper" in model.model_fields:
        values["upper"] = 1.0
    return values


FILES = ("file", "glob")  # the fields that say where a plugin looks
CHECKS, METRICS = sorted(extensions.available("checks")), sorted(extensions.available("metrics"))
PLUGINS = [
    *(("checks", name, "judge") for name in CHECKS),
    *(("metrics", name, "read") for name in METRICS),
]
CONTRACTS = [
    *sorted(contract.LIBRARY.glob("[!_]*.py")),
    *sorted(
        {
            file
            for name in places.projects()
            for folder in projects.find(name).contracts
            for file in folder.glob("[!_]*.py")
        }
    ),
]
EVIDENCE = {
    "nothing": {},
    "an empty file": {"some/text": b""},
    "a binary file": {"some/text": b"\xff\x00\xfe"},
    "broken JSON": {"some/text": b'{"some/text": NaN, "x": [[['},
    "JSON without a number": {"some/text": b'{"some/text": NaN}'},
    "other JSON": {"some/text": b"[1, 2]"},
    "what is looked for, again and again": {"some/text": b"some/text\nsome/text\n"},
    "two numbers": {"some/text": b"0\n0\n"},
    "other digits": {"some/text": "٣".encode()},
    "many brackets": {"some/text": b"[" * 5_000},
    "one long line": {"some/text": b"x" * 1_000_000},
}
REFERENCES = [None, Reference("cell"), Reference("cell", {}), Reference("cell", is_missing=True)]

each_plugin = pytest.mark.parametrize(("package", "name", "method"), PLUGINS, ids=[p[1] for p in PLUGINS])
each_contract = pytest.mark.parametrize("file", CONTRACTS, ids=lambda file: f"{file.parents[1].name}-{file.stem}")


def test_there_are_plugins_to_hold() -> None:
    assert CHECKS
    assert METRICS
    assert CONTRACTS


@each_plugin
def test_a_plugin_says_what_it_is_for(package: str, name: str, method: str) -> None:
    kind = load(package, name)
    assert (inspect.getmodule(kind) or kind).__doc__
    assert kind.__doc__
    assert getattr(kind, method).__doc__


@each_plugin
def test_a_plugin_is_a_model_that_knows_its_fields(package: str, name: str, method: str) -> None:
    kind = load(package, name)
    assert issubclass(kind, BaseModel)
    assert callable(getattr(kind, method))
    kind.model_validate(example(kind))
    with pytest.raises(ValidationError, match="no_such_field"):
        kind.model_validate({**example(kind), "no_such_field": 1})


@each_plugin
@pytest.mark.parametrize("wrong", [None, 5, [], {"a": 1}])
def test_a_plugin_refuses_fields_of_another_type(package: str, name: str, method: str, wrong: object) -> None:
    kind = load(package, name)
    assert callable(getattr(kind, method))
    texts = [key for key, field in kind.model_fields.items() if field.annotation is str]
    for key in texts:
        with pytest.raises(ValidationError):
            kind.model_validate({**example(kind), key: wrong})


@pytest.mark.parametrize("content", EVIDENCE.values(), ids=EVIDENCE)
@pytest.mark.parametrize("name", CHECKS)
def test_a_check_judges_whatever_it_finds(tmp_path: Path, name: str, content: dict[str, bytes]) -> None:
    write(tmp_path, content)
    kind = load("checks", name)
    check = kind.model_validate(example(kind))
    for reference in REFERENCES:
        judgement = check.judge(Evidence(tmp_path, {"some/text": Metric("some/text", None, fault="gone")}, reference))
        assert isinstance(judgement, Judgement)
        assert judgement.message
        assert "\n" not in judgement.message
        assert len(judgement.message) < 500
        assert not (judgement.passed and not content), "nothing at all is no evidence"
        assert not judgement.file or (tmp_path / judgement.file).is_file()


@pytest.mark.parametrize("content", EVIDENCE.values(), ids=EVIDENCE)
@pytest.mark.parametrize("name", METRICS)
def test_a_source_says_why_it_has_no_number(tmp_path: Path, name: str, content: dict[str, bytes]) -> None:
    write(tmp_path, content)
    kind = load("metrics", name)
    source = kind.model_validate(example(kind))
    if name in extensions.ours("metrics") or not reads_number(source, tmp_path):
        with pytest.raises(ValueError, match="some/text") as caught:
            source.read(tmp_path)
        assert "\n" not in str(caught.value)


def reads_number(source: Any, directory: Path) -> bool:
    """Tell whether a source finds a finite number, or only such numbers."""
    try:
        value = source.read(directory)
    except ValueError:
        return False
    return all(map(math.isfinite, value if isinstance(value, tuple) else (value,)))


def write(directory: Path, content: dict[str, bytes]) -> None:
    """Write files of evidence."""
    for name, data in content.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(data)


@each_plugin
@pytest.mark.parametrize("in_its_place", [Path.mkdir, lambda path: path.symlink_to(path.name)], ids=["folder", "loop"])
def test_what_is_no_file_is_no_evidence(
    tmp_path: Path, in_its_place: Callable[[Path], None], package: str, name: str, method: str
) -> None:
    (tmp_path / "some").mkdir()
    in_its_place(tmp_path / "some" / "text")
    kind = load(package, name)
    plugin = kind.model_validate(example(kind))
    if package == "checks":
        assert not getattr(plugin, method)(Evidence(tmp_path)).passed
    else:
        with pytest.raises(ValueError, match="some/text"):
            getattr(plugin, method)(tmp_path)


@each_plugin
@pytest.mark.parametrize("outside", ["../text", "/etc/passwd", "some/../../text", "..", ".", "", "a\0b"])
def test_a_plugin_looks_at_nothing_outside_of_the_evidence(package: str, name: str, method: str, outside: str) -> None:
    kind = load(package, name)
    assert callable(getattr(kind, method))
    for field in set(FILES) & set(kind.model_fields):
        with pytest.raises(ValidationError, match=field):
            kind.model_validate({**example(kind), field: outside})


@each_contract
def test_a_contract_is_a_documented_model(file: Path) -> None:
    module = modules.load(f"_conformance_{file.parents[1].name}_{file.stem}", file)
    assert module.__doc__
    assert issubclass(module.Contract, BaseModel)
    assert module.Contract.__doc__


@each_contract
@pytest.mark.parametrize("wrong", [5, "text", [1], True])
def test_a_contract_refuses_a_block_that_is_no_mapping(file: Path, wrong: object) -> None:
    module = modules.load(f"_conformance_{file.parents[1].name}_{file.stem}", file)
    with pytest.raises(ValidationError):
        module.Contract.model_validate(wrong)
