"""Finds the contracts for the blocks of a configuration, and validates a block with its contract.

A contract is a pydantic model with the name `Contract`, in a module in a folder `contracts/`. The name of the module is
the path of the block (see `toolbox/config/contracts/`).
"""

from __future__ import annotations

import datetime as dt
import functools
import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args

from toolbox.config import paths
from toolbox.config.document import Document
from toolbox.config.paths import Path
from toolbox.config.references import Resolver
from toolbox.ground.model import null_fields
from toolbox.ground.model.errors import ConfigurationError, ConfigurationFaults
from toolbox.ground.model.nearest import did_you_mean, unread_fields
from toolbox.ground.model.text import abbreviated, without_kind
from toolbox.ground.system import modules, places

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic_core import ErrorDetails

Model = TypeVar("Model", bound="BaseModel")

LIBRARY = FilePath(__file__).parent / "contracts"
HIDDEN_INPUT = "hidden_input"
"""The type of an error of pydantic whose message is shown without the value, which may contain a secret."""
_EXTRA: Final = "extra_forbidden"
_TEXT_OR_JSON: Final = {"string_type", "invalid-json-value"}  # types of errors of pydantic
_OPEN = "is_open"
_ROOT = "root"  # pydantic's name for the only field of a `RootModel`


def files(folder: FilePath) -> dict[Path, FilePath]:
    """Return the files of the contracts in a folder, by the paths of their blocks."""
    return {tuple(file.stem.split("__")): file for file in sorted(folder.glob("[!_]*.py"))}


def in_library(folder: FilePath) -> bool:
    """Tell whether a folder of contracts belongs to Topgallant. The blocks of such contracts may be null."""
    return places.module_name(folder) is not None


def has_block(document: Document, path: Path, *, or_null: bool = False) -> bool:
    """Tell whether a document has a block that is not null. With `or_null`, a block that is null counts too."""
    try:
        return document.find(path) is not None or or_null
    except paths.PathError:
        return False


def validated(document: Document, path: Path, model: type[Model], *, or_null: bool = False) -> Model:
    """Return a block of a document as its model, with its references resolved.

    A missing block is validated as an empty mapping. A field that must not be null has its default if it is null.

    Args:
        or_null: whether a block that is null is validated as null, and not as an empty mapping.

    Raises:
        ConfigurationError: the message names every fault with the file, the line and what was expected.
    """
    try:
        block = Resolver(document).find(path)
    except paths.PathError:
        block = {}
    block = {} if block is None and not or_null else block
    return _reported(document, path, model, block, lambda: null_fields.validate(model, block))


def checked(document: Document, path: Path, model: type[Model], value: Any) -> Model:
    """Return a value at a path of a document as its model. Unlike in a block, null is never the default of a field.

    Args:
        value: the value, after its references were resolved.

    Raises:
        ConfigurationError: as for `validated`.
    """
    return _reported(document, path, model, value, lambda: model.model_validate(value))


def _reported(document: Document, path: Path, model: type[Model], block: Any, check: Callable[[], Model]) -> Model:
    from pydantic import ValidationError

    if isinstance(block, dict) and (unread := unread_fields(model, block)):
        raise ConfigurationFaults(_unknown_field(document, (*path, name), model, len(path)) for name in unread)
    try:
        return check()
    except ValidationError as error:
        raise ConfigurationFaults(_fault(document, path, model, block, detail) for detail in error.errors()) from None


def accepts_null(path: Path, folders: Sequence[FilePath]) -> bool:
    """Tell whether a field may be null in a configuration, as far as the contracts know the field.

    Args:
        folders: the folders with the contracts of the project.

    Raises:
        ConfigurationError: a contract is broken.
    """
    for folder in (LIBRARY, *folders):
        for block, file in files(folder).items():
            inner = path[len(block) :]
            is_checked = path[: len(block)] == block and (inner or not in_library(folder))
            if is_checked and not null_fields.accepts_null(load(file), inner):
                return False
    return True


def unaddable(document: Document, path: Path, folders: Sequence[FilePath]) -> str:
    """Return why a missing field cannot be added alone: it is unknown, or the whole entry around it is missing.

    Args:
        folders: the folders with the contracts of the project.

    Raises:
        ConfigurationError: a contract is broken.
    """
    for folder in (LIBRARY, *folders):
        for at, file in files(folder).items():
            if path[: len(at)] != at or len(path) == len(at):
                continue
            entry = path[: len(at) + 1]
            if len(path) > len(entry) and is_open(at, [folder]) and not has_block(document, entry):
                return f"add the whole entry `{paths.render(entry)}`, with all its fields"
            if hint := _unknown_key(load(file), path[len(at) :]):
                return hint
    return ""


def _unknown_key(model: type[BaseModel], keys: Path) -> str:
    """Return that a key of a path inside a block is unknown, with similar names; empty if the model allows the keys."""
    from pydantic import ValidationError

    if any(isinstance(key, int) for key in keys):
        return ""
    block: Any = None
    for key in reversed(keys):
        block = {key: block}
    try:
        model.model_validate(block)
    except ValidationError as error:
        for *above, name in (_keys_of(block, each["loc"]) for each in error.errors() if each["type"] == _EXTRA):
            if name not in (fields := _fields_at(model, tuple(above))):  # another member of a union may know the field
                return f"`{name}` is an unknown field: {did_you_mean(str(name), fields, label='fields')}"
    return ""


@functools.cache
def load(file: FilePath) -> type[BaseModel]:
    """Return the contract of a file.

    Raises:
        ConfigurationError: the file cannot be imported, or has no contract.
    """
    try:
        if (name := places.module_name(file)) is not None:  # so that the library uses the same class
            module = importlib.import_module(name)
        else:
            module = modules.load(f"_contract_{file.parent.parent.name}_{file.stem}", file)
        contract: type[BaseModel] = module.Contract
        _ = contract.model_validate  # raises if `Contract` is not a pydantic model
    except (Exception, SystemExit) as error:
        # Any error at import, and a missing `Contract`, is a fault of this file.
        raise ConfigurationError(f"the contract {file} is broken: {type(error).__name__}: {error}") from error
    return contract


def is_open(path: Path, folders: Iterable[FilePath]) -> bool:
    """Tell whether a block is a mapping of names to which the local file may add entries.

    The contract of the block declares it: `is_open: ClassVar[bool] = True`.

    Args:
        folders: the folders of the contracts.

    Raises:
        ConfigurationError: the contract is broken.
    """
    contracts = [load(file) for folder in folders if (file := files(folder).get(path)) is not None]
    return any(getattr(each, _OPEN, False) is True for each in contracts)


def _fault(document: Document, path: Path, model: type[BaseModel], block: Any, detail: ErrorDetails) -> str:
    at = (*path, *_keys_of(block, detail["loc"]))
    where = f"{document.where(at)}: `{paths.render(at)}`"
    if detail["type"] == _EXTRA:
        return _unknown_field(document, at, model, len(path))
    if detail["type"] == HIDDEN_INPUT:
        return f"{where}: {detail['msg']}"
    if detail["type"] == "missing":
        return f"{where} is missing"
    value, rule = abbreviated(detail["input"]), without_kind(detail["msg"])
    if isinstance(detail["input"], dt.date) and detail["type"] in _TEXT_OR_JSON:
        return f'{where} is the date {value}: write "{value}" for the text'
    if rule.startswith("must "):
        return f"{where} {rule}, not {value}"
    return f"{where} is {value}: {rule[:1].lower()}{rule[1:]}"


def _unknown_field(document: Document, at: Path, model: type[BaseModel], depth: int) -> str:
    """Return the fault of a field that the model does not have. `depth` is the number of keys above the block."""
    fields = _fields_at(model, at[depth:-1])
    where = f"{document.where(at)}: `{paths.render(at)}`"
    if str(at[-1]) in fields:  # another model of the union has this field
        return f"{where} does not belong here: remove it"
    return f"{where} is an unknown field: {did_you_mean(str(at[-1]), fields, label='fields')}"


def _keys_of(block: Any, location: tuple[int | str, ...]) -> Path:
    """Return the keys of a pydantic error location, without the names of union members that pydantic adds."""
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
    """Return the field names of the model at `keys` inside a block; for a union, the names of all its models."""
    models = {model}
    for key in keys:
        names = {each: _ROOT if _ROOT in each.model_fields else str(key) for each in models}
        fields = [each.model_fields[name] for each, name in names.items() if name in each.model_fields]
        models = {each for field in fields for each in _models_in(field.annotation)} or models
    return {name for each in models for name in null_fields.complete(each).model_fields}


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if hasattr(annotation, "model_fields"):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)
