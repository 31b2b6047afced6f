"""Held for every check, source of metrics and contract, found by its place as the library finds it."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from toolbox.config import contract
from toolbox.model.evidence import Evidence, Judgement
from toolbox.orchestration import projects
from toolbox.system import modules, places

LIBRARY = Path(inspect.getfile(contract)).parents[1]


def found(package: str) -> list[str]:
    """Return the names of the modules of a package of plugins."""
    return sorted(path.stem for path in (LIBRARY / package).glob("[!_]*.py"))


def load(package: str, name: str) -> ModuleType:
    """Import one."""
    return importlib.import_module(f"toolbox.{package}.{name}")


def example(model: type[BaseModel]) -> dict[str, Any]:
    """Return values for a plugin, by what its fields are: those that are required, and what a validator wants."""
    simple: dict[Any, Any] = {str: "some/text", int: 1, float: 1.0}
    values = {
        name: simple[field.annotation]
        for name, field in model.model_fields.items()
        if field.is_required() and field.annotation in simple
    }
    if "upper" in model.model_fields:
        values["upper"] = 1.0
    return values


CHECKS, METRICS = found("checks"), found("metrics")
PLUGINS = [
    *(("checks", name, "Check", "judge") for name in CHECKS),
    *(("metrics", name, "Source", "read") for name in METRICS),
]
CONTRACTS = [
    *sorted(contract.LIBRARY.glob("[!_]*.py")),
    *(file for name in places.projects() for file in sorted(projects.find(name).contracts.glob("[!_]*.py"))),
]
EVIDENCE = {
    "nothing": {},
    "empty files": {"some/text": b"", "exit_code": b""},
    "binary files": {"some/text": b"\xff\x00\xfe", "exit_code": b"\xff\x00"},
    "hostile JSON": {"some/text": b'{"some/text": NaN, "x": [[[', "exit_code": b"0\n0\n"},
    "other JSON": {"some/text": b"[1, 2]", "exit_code": "٣".encode()},
}

each_plugin = pytest.mark.parametrize(("package", "name", "model", "method"), PLUGINS, ids=[p[1] for p in PLUGINS])
each_contract = pytest.mark.parametrize("file", CONTRACTS, ids=lambda file: f"{file.parents[1].name}-{file.stem}")


def test_there_are_plugins_to_hold() -> None:
    assert CHECKS
    assert METRICS
    assert CONTRACTS


@each_plugin
def test_a_plugin_says_what_it_is_for(package: str, name: str, model: str, method: str) -> None:
    module = load(package, name)
    assert module.__doc__
    assert getattr(module, model).__doc__
    assert getattr(getattr(module, model), method).__doc__


@each_plugin
def test_a_plugin_is_a_model_that_knows_its_fields(package: str, name: str, model: str, method: str) -> None:
    kind = getattr(load(package, name), model)
    assert issubclass(kind, BaseModel)
    assert callable(getattr(kind, method))
    kind.model_validate(example(kind))
    with pytest.raises(ValidationError, match="no_such_field"):
        kind.model_validate({**example(kind), "no_such_field": 1})


@each_plugin
@pytest.mark.parametrize("wrong", [None, 5, [], {"a": 1}])
def test_a_plugin_refuses_fields_of_another_type(
    package: str, name: str, model: str, method: str, wrong: object
) -> None:
    kind = getattr(load(package, name), model)
    assert callable(getattr(kind, method))
    texts = [key for key, field in kind.model_fields.items() if field.annotation is str]
    for key in texts:
        with pytest.raises(ValidationError):
            kind.model_validate({**example(kind), key: wrong})


@pytest.mark.parametrize("content", EVIDENCE.values(), ids=EVIDENCE)
@pytest.mark.parametrize("name", CHECKS)
def test_a_check_judges_whatever_it_finds(tmp_path: Path, name: str, content: dict[str, bytes]) -> None:
    write(tmp_path, content)
    kind = load("checks", name).Check
    judgement = kind.model_validate(example(kind)).judge(Evidence(tmp_path))
    assert isinstance(judgement, Judgement)
    assert judgement.message
    assert "\n" not in judgement.message
    assert not (judgement.passed and not content), "nothing at all is no evidence"


@pytest.mark.parametrize("content", EVIDENCE.values(), ids=EVIDENCE)
@pytest.mark.parametrize("name", METRICS)
def test_a_source_says_why_it_has_no_number(tmp_path: Path, name: str, content: dict[str, bytes]) -> None:
    write(tmp_path, content)
    kind = load("metrics", name).Source
    with pytest.raises(ValueError, match=r"\S"):
        kind.model_validate(example(kind)).read(tmp_path)


def write(directory: Path, content: dict[str, bytes]) -> None:
    """Write files of evidence."""
    for name, data in content.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(data)


@each_plugin
def test_a_directory_in_place_of_a_file_is_no_evidence(
    tmp_path: Path, package: str, name: str, model: str, method: str
) -> None:
    for directory in ("some/text", "exit_code"):
        (tmp_path / directory).mkdir(parents=True)
    kind = getattr(load(package, name), model)
    plugin = kind.model_validate(example(kind))
    if package == "checks":
        assert not getattr(plugin, method)(Evidence(tmp_path)).passed
    else:
        with pytest.raises((ValueError, OSError)):
            getattr(plugin, method)(tmp_path)


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
