"""Finds the contracts of the blocks of a configuration, and validates a block by its model.

A contract is a pydantic model named `Contract` in a module whose name is the path of the block (see
`toolbox/config/contracts/`). It is found by its place: nothing is registered.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterable, Iterator
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from toolbox.config import paths
from toolbox.config.document import Document
from toolbox.config.paths import Path
from toolbox.config.references import Resolver
from toolbox.model.errors import ConfigurationError, ConfigurationFaults
from toolbox.model.nearest import did_you_mean
from toolbox.model.text import abbreviated, without_kind
from toolbox.system import modules, places

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic_core import ErrorDetails

Model = TypeVar("Model", bound="BaseModel")

LIBRARY = FilePath(__file__).parent / "contracts"
_PACKAGE = FilePath(__file__).parents[1]
_ROOT = "root"  # the name that pydantic gives to the only field of a `RootModel`


def find(folders: Iterable[FilePath]) -> dict[Path, type[BaseModel]]:
    """Return the contracts of these folders, by the path of their block."""
    contracts: dict[Path, type[BaseModel]] = {}
    for folder in folders:
        for file in sorted(folder.glob("[!_]*.py")):
            contracts[tuple(file.stem.split("__"))] = _load(file)
    return contracts


def in_library(folder: FilePath) -> bool:
    """Tell whether a folder of contracts belongs to the library, whose blocks may be null for a preset to fill in.

    The projects of an installed package are in its folder `bundled`, and have their own contracts like any project.
    """
    return folder.is_relative_to(_PACKAGE) and not folder.is_relative_to(places.builtin_root() / "projects")


def is_given(document: Document, path: Path, *, or_null: bool = False) -> bool:
    """Tell whether a document has a block, or has at least null in its place."""
    try:
        return document.find(path) is not None or or_null
    except paths.PathError:
        return False


def validated(document: Document, path: Path, model: type[Model], *, or_null: bool = False) -> Model:
    """Return a block of a document, references followed, as its model. A missing block is read as an empty mapping.

    Args:
        or_null: whether the model decides about null; otherwise null is read as an empty mapping too.

    Raises:
        ConfigurationError: it names every fault, with the file, the line and what was expected.
    """
    from pydantic import ValidationError

    try:
        block = Resolver(document).find(path)
    except paths.PathError:
        block = {}
    block = {} if block is None and not or_null else block
    try:
        return model.model_validate(block)
    except ValidationError as error:
        raise ConfigurationFaults(_fault(document, path, model, block, detail) for detail in error.errors()) from None


@functools.cache
def _load(file: FilePath) -> type[BaseModel]:
    try:
        if in_library(file):  # the same module that the code of the library imports
            module = importlib.import_module(".".join(file.relative_to(_PACKAGE.parent).with_suffix("").parts))
        else:
            module = modules.load(f"_contract_{file.parent.parent.name}_{file.stem}", file)
        contract: type[BaseModel] = module.Contract
        _ = contract.model_validate  # only a pydantic model has it
    except (Exception, SystemExit) as error:
        # Whatever the file raises, or that it has no Contract, is a fault of that file.
        raise ConfigurationError(f"the contract {file} is broken: {type(error).__name__}: {error}") from error
    return contract


def _fault(document: Document, path: Path, model: type[BaseModel], block: Any, detail: ErrorDetails) -> str:
    at = (*path, *_keys_of(block, detail["loc"]))
    where = f"{document.where(at)}: `{paths.render(at)}`"
    if detail["type"] == "extra_forbidden":
        fields = _fields_at(model, at[len(path) : -1])
        return f"{where} is not a field here: {did_you_mean(str(at[-1]), fields, label='fields')}"
    if detail["type"] == "missing":
        return f"{where} is missing"
    return f"{where} is {abbreviated(detail['input'])}: {_lower_first(without_kind(detail['msg']))}"


def _keys_of(block: Any, location: tuple[int | str, ...]) -> Path:
    """Leave out what pydantic adds to a location that is no key: the names of the members of a union."""
    keys: list[int | str] = []
    value = block
    for index, key in enumerate(location):
        try:
            _, value = paths.child(value, key)
        except KeyError:
            if index == len(location) - 1 and isinstance(value, dict):
                keys.append(key)
            continue
        keys.append(key)
    return tuple(keys)


def _fields_at(model: type[BaseModel], keys: Path) -> set[str]:
    """Return the field names of the model that `keys` lead to inside a block; for a union, those of all models."""
    models = {model}
    for key in keys:
        names = {found: _ROOT if _ROOT in found.model_fields else str(key) for found in models}
        fields = [found.model_fields[name] for found, name in names.items() if name in found.model_fields]
        models = {found for field in fields for found in _models_in(field.annotation)} or models
    return {name for found in models for name in _complete(found).model_fields}


def _complete(model: type[BaseModel]) -> type[BaseModel]:
    """Return a model with the fields that extensions add to it: a model that can have such fields has `complete`."""
    complete: type[BaseModel] = getattr(model, "complete", lambda: model)()
    return complete


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if hasattr(annotation, "model_fields"):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]
