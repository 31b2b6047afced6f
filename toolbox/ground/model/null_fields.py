"""Validates blocks of a configuration in which null stands for the default of a field.

A preset or an override can only set fields that the file has. So a field is added to the file with the value null, and
has its default until a preset sets it. If a field accepts null itself, its null stays null.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

Model = TypeVar("Model", bound="BaseModel")
Keys = tuple[int | str, ...]

_MAX_INDEX = 1000
_ROOT = "root"  # pydantic's name for the only field of a `RootModel`


def validate(model: type[Model], block: Any) -> Model:
    """Return a block as its model. A field that must not be null has its default if the block sets it to null.

    Raises:
        ValidationError: the block is wrong.
    """
    from pydantic import ValidationError

    try:
        return model.model_validate(block)
    except ValidationError as error:
        nulls = [keys for detail in error.errors() if (keys := _keys_of_null(block, detail["loc"]))]
        nulls = [keys for keys in nulls if _has_default(model, keys)]
        if not nulls:
            raise
    return validate(model, _without(block, nulls))


def complete(model: type[BaseModel]) -> type[BaseModel]:
    """Return a model with the fields that extensions add to the model, if it has the class method `complete`."""
    completed: type[BaseModel] = getattr(model, "complete", lambda: model)()
    return completed


def _keys_of_null(block: Any, location: Keys) -> Keys:
    """Return the path of a null in a mapping; empty if the error is at another value.

    The location of an error also names the members of unions, which are no keys.
    """
    keys: list[int | str] = []
    value, parent = block, None
    for key in location:
        is_item = isinstance(value, list) and isinstance(key, int) and key < len(value)
        if is_item or (isinstance(value, Mapping) and key in value):
            value, parent = value[key], value
            keys.append(key)
    return tuple(keys) if value is None and isinstance(parent, Mapping) else ()


def accepts_null(model: type[BaseModel], keys: Keys) -> bool:
    """Return whether `validate` accepts null at a path inside a block, whatever the other fields are."""
    from pydantic import ValidationError

    if any(isinstance(key, int) and not 0 <= key < _MAX_INDEX for key in keys):
        return True
    block: Any = None
    for key in reversed(keys):
        block = [*({} for _ in range(key)), block] if isinstance(key, int) else {key: block}
    try:
        validate(model, block)
    except ValidationError as error:
        return all(_keys_of_null(block, detail["loc"]) != keys for detail in error.errors())
    return True


def _has_default(model: type[BaseModel], keys: Keys) -> bool:
    """Return whether a path inside a block is a field with a default, and not, for example, an entry of a mapping."""
    kinds = list(_kinds(model))
    has_default = False
    for key in keys:
        fields = [field for kind in kinds if (field := _field(kind, key)) is not None]
        entries = [get_args(kind)[-1] for kind in kinds if get_origin(kind) in (dict, list)]
        has_default = bool(fields) and not entries and not any(field.is_required() for field in fields)
        kinds = [each for kind in (*(field.annotation for field in fields), *entries) for each in _kinds(kind)]
    return has_default


def _kinds(annotation: Any) -> Iterator[Any]:
    """Yield the models, mappings and lists that an annotation allows. The value of a `RootModel` is its root."""
    if hasattr(annotation, "model_fields"):
        is_root = getattr(annotation, "__pydantic_root_model__", False)
        yield from _kinds(annotation.model_fields[_ROOT].annotation) if is_root else (complete(annotation),)
    elif get_origin(annotation) in (dict, list):
        yield annotation
    else:
        for argument in get_args(annotation):
            yield from _kinds(argument)


def _field(kind: Any, key: int | str) -> FieldInfo | None:
    """Return the field of a model by its name in a block."""
    fields: Mapping[str, FieldInfo] = getattr(kind, "model_fields", {})
    return next((field for name, field in fields.items() if key == (field.alias or name)), None)


def _without(block: Any, places: Sequence[Keys]) -> Any:
    """Return a copy of a block without the values at some paths."""
    changed = copy.deepcopy(block)
    for *parents, last in places:
        container = changed
        for key in parents:
            container = container[key]
        container.pop(last, None)
    return changed
