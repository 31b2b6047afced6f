"""Checks that a comment overrides only the fields that `ci.overridable` of the configuration lists.

`configuration` calls `check` for overrides by a person who may not change the configuration itself. The check compares
all leaves of the configuration before and after the overrides, not the paths in the comment: a comment that replaces
`matrix` also changes `matrix.workload.command`, and a comment that changes a mapping with a YAML anchor also changes
the fields that contain its aliases.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any, Final

from toolbox.config import contract, paths, presets, references
from toolbox.config.document import Document
from toolbox.config.paths import Path
from toolbox.config.references import Resolver
from toolbox.model.errors import UsageError
from toolbox.model.text import first_of
from toolbox.system import filesystem

SOURCE: Final = "/var"
"""The command of a comment that overrides a field. In messages, it is the source of the overrides."""
BLOCK: Final = "ci"
FIELD: Final = "overridable"
_ANY_KEYS: Final = "**"
_WORKLOAD: Final = (references.MATRIX, "workload")
# These fields determine which programs are executed, where, with which secrets, and what a run may cost.
_FORBIDDEN: Final[tuple[Path, ...]] = (
    *((block,) for block in ("secrets", "targets", "clusters", "results", BLOCK, presets.BLOCK)),
    *((*_WORKLOAD, field) for field in ("command", "cwd", "env", "files", "write")),
    (references.MATRIX, "max_cost"),
    (references.MATRIX, "max_cells"),
)
# References in these fields of the workload may refer to fields that a comment changes.
_MAY_REFER: Final = ("env", "write")
# If the name of an axis in one of these fields is a path, the axis sets the field at this path.
_AXES: Final = ("axes", "include", "zip")
_MOST_CHARACTERS: Final = 10_000
_MOST_VALUES: Final = 1_000
_DEEPEST: Final = 8
_LARGEST: Final = 2**63 - 1  # the largest integer of databases; Python cannot print an integer of thousands of digits
_MOST_FAULTS: Final = 3
_UNSTORABLE: Final = re.compile(r"[\x00\ud800-\udfff]")  # programs get no NUL, and UTF-8 has no half of a pair
_PLAIN: Final = (str, int, float, bool, type(None), dt.date)


class ForbiddenOverrides(UsageError):
    """The overrides of a comment change fields that a comment may not change.

    Args:
        faults: the paths in the comment, by the fault; an empty path if a field changes through another field.
    """

    def __init__(self, faults: Mapping[str, str]) -> None:
        self.faults = dict(faults)
        super().__init__(f"{SOURCE}: " + "\n  ".join(first_of(list(faults), _MOST_FAULTS)))


def check_value(value: object) -> None:
    """Raise a `ValueError` if an override in a comment is not plain data, is too large, or contains a reference."""
    parts = list(islice(_parts(value, 0), _MOST_VALUES + 1))
    if len(parts) > _MOST_VALUES or max(depth for _, depth in parts) > _DEEPEST:
        raise ValueError(f"the value has more than {_MOST_VALUES} parts, or is more than {_DEEPEST} levels deep")
    texts = [item for item, _ in parts if isinstance(item, str)]
    if sum(map(len, texts)) > _MOST_CHARACTERS:
        raise ValueError(f"the value has more than {_MOST_CHARACTERS} characters")
    if forbidden := [item for item, _ in parts if not isinstance(item, (*_PLAIN, dict, list))]:
        kind = type(forbidden[0]).__name__
        raise ValueError(f"the value contains a {kind}: only strings, numbers, lists and mappings are allowed")
    if any(isinstance(item, int) and abs(item) > _LARGEST for item, _ in parts):
        raise ValueError(f"the value contains an integer beyond {_LARGEST}")
    if any(map(_UNSTORABLE.search, texts)):
        raise ValueError("the value contains a NUL character or a half of a surrogate pair, which no file can contain")
    if any(map(references.is_reference, texts)):
        raise ValueError("the value contains a reference (`@path`, `{@path}`, `*$@path`): write the value itself")


def check(before: Document, after: Document, overrides: Document) -> None:
    """Check that the overrides of a comment, which change `before` to `after`, change only allowed fields.

    Raises:
        ForbiddenOverrides: the overrides change other fields. The message says how a maintainer can allow this.
    """
    patterns = _patterns(before)
    values = {_keys(after, paths.parse(str(text))): (str(text), value) for text, value in overrides.root.items()}
    changed = set(_changed(before.root, after.root, ()))
    faults: dict[str, str] = {}
    for path, (text, value) in values.items():
        leaves = sorted(leaf for leaf in changed if leaf[: len(path)] == path) or [path]
        whole = path if isinstance(value, list) else None
        for leaf in leaves:
            faults |= dict.fromkeys(_faults(leaf, patterns, source=before.source, whole=whole), text)
    aliased = (leaf for leaf in changed if not any(leaf[: len(path)] == path for path in values))
    # Changes inside a preset are allowed: a preset shares its mappings with the fields that it has set, so a change of
    # these fields also changes the preset, which was already applied.
    by_alias = (
        _forbidden_message(leaf) for leaf in sorted(aliased) if leaf[0] != presets.BLOCK and _is_forbidden(leaf)
    )
    faults |= dict.fromkeys(by_alias, "")
    if not faults:
        faults |= dict.fromkeys(_changed_by_reference(before, after), "")
    if faults:
        raise ForbiddenOverrides(faults)


def _parts(value: object, depth: int) -> Iterator[tuple[object, int]]:
    """Yield a value and all values inside it, including the keys of mappings, each with its depth."""
    yield value, depth
    if isinstance(value, dict | list) and depth <= _DEEPEST:
        inner = [*value, *value.values()] if isinstance(value, dict) else value
        for item in inner:
            yield from _parts(item, depth + 1)


def _patterns(document: Document) -> list[Path]:
    from toolbox.config.contracts.ci import Contract  # pydantic is slow to import

    return [paths.parse(text) for text in contract.validated(document, (BLOCK,), Contract).overridable]


def _keys(document: Document, path: Path) -> tuple[str, ...]:
    """Return the actual keys along a path: for a list with two items, `a[-1]` becomes `a[1]`."""
    return tuple(str(key) for _, key in document.slots(path))


def _changed(before: Any, after: Any, at: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the paths of the leaves in which two values differ."""
    old, new = _children(before), _children(after)
    if type(before) is type(after) and (old or new):
        for key in {**old, **new}:
            if key in old and key in new:
                yield from _changed(old[key], new[key], (*at, key))
            else:
                yield from _leaves(old.get(key, new.get(key)), (*at, key))
    elif type(before) is not type(after) or before != after:
        yield from _leaves(before, at)
        yield from _leaves(after, at)


def _children(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return {str(key): item for key, item in value.items()}
    return {str(index): item for index, item in enumerate(value)} if isinstance(value, list) else {}


def _leaves(value: Any, at: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    children = _children(value)
    for key, item in children.items():
        yield from _leaves(item, (*at, key))
    if not children:
        yield at


def _faults(
    leaf: tuple[str, ...], patterns: Iterable[Path], *, source: str, whole: tuple[str, ...] | None
) -> Iterator[str]:
    """Yield the reasons why a leaf may not be changed. A leaf of an axis also changes the field that the axis sets.

    Args:
        source: the file in which a maintainer may allow the field.
        whole: the path of a list that the comment replaces: messages name the list instead of its items.
    """
    for path in (leaf, *_set_by_axis(leaf)):
        shown_path = whole if whole is not None and path[:-1] == whole else path
        text = paths.render(shown_path)
        if _is_forbidden(path):
            yield _forbidden_message(shown_path)
        elif not any(_matches(path, pattern) for pattern in patterns):
            yield (
                f"a comment may not change `{text}`: a maintainer can allow this by `{BLOCK}: "
                f"{{{FIELD}: [{filesystem.dump_yaml_line(text)}]}}` in {source}"
            )


def _set_by_axis(leaf: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the path of the field that an axis sets, if the leaf belongs to an axis whose name is a path."""
    if leaf[:1] == (references.MATRIX,) and leaf[1:2] and leaf[1] in _AXES:
        for key in leaf[2:]:
            if "." in key or "[" in key:
                yield tuple(map(str, paths.parse(key)))


def _forbidden_paths() -> tuple[Path, ...]:
    """Return the paths that no comment may change, including the paths that backends add."""
    from toolbox.extensions import loading  # pydantic is slow to import

    added: list[Path] = []
    for target in loading.extending_targets():
        fields = getattr(target, "guarded_fields", target.workload_fields.model_fields)
        added += [(*_WORKLOAD, *paths.parse(field)) for field in fields]
    return (*_FORBIDDEN, *added)


def _is_forbidden(path: tuple[str, ...]) -> bool:
    """Tell whether a path is inside a field that no comment may change, or contains such a field."""
    return any(path[: len(forbidden)] == forbidden[: len(path)] for forbidden in _forbidden_paths())


def _forbidden_message(path: tuple[str, ...]) -> str:
    return f"a comment may never change `{paths.render(path)}`"


def _matches(path: tuple[str, ...], pattern: Path) -> bool:
    """Tell whether a pattern matches a path, or a field that contains the path."""
    if not pattern:
        return True
    first, *rest = pattern
    if first == _ANY_KEYS:
        return bool(path) and any(_matches(path[index:], tuple(rest)) for index in range(len(path) + 1))
    return bool(path) and fnmatchcase(path[0], str(first).replace("[", "[[]")) and _matches(path[1:], tuple(rest))


def _changed_by_reference(before: Document, after: Document) -> Iterator[str]:
    """Yield a fault for each field that no comment may change, if its value changes through a reference."""
    for field, value in _guarded_values(before).items():
        if value != _guarded_values(after).get(field):
            yield f"a comment may never change `{field}`, which refers to a field that this comment changes"


def _guarded_values(document: Document) -> dict[str, str]:
    """Return the resolved values of the fields that no comment may change even by reference, by path."""
    resolver = Resolver(document)
    values: dict[str, Any] = {paths.render(path): resolver.secret_name(path) for path in resolver.secrets()}
    for path in _forbidden_paths():
        try:
            value = resolver.find(path)
        except paths.PathError:
            continue
        if path[-1] == "command":  # arguments may refer to fields that a comment changes, the program may not
            value = (value.split() if isinstance(value, str) else value or [])[:1]
        if path[-1] not in _MAY_REFER and path[0] != presets.BLOCK:
            texts = (item for item, _ in _parts(value, 0) if isinstance(item, str))
            containers = {prefix for text in texts if (prefix := references.prefix_of(text)) is not None}
            values[paths.render(path)] = [value, *(resolver.find(paths.parse(each)) for each in sorted(containers))]
    return {name: filesystem.dump_yaml_line(value) for name, value in values.items()}
