"""Checks that a comment overrides only the fields that `ci.overridable` of the configuration lists.

`configuration` calls `check` for overrides by a person who may not change the configuration itself. The check compares
all leaves of the configuration before and after the overrides, not the paths in the comment: a comment that replaces
`matrix` also changes `matrix.workload.command`, and a comment that changes a mapping with a YAML anchor also changes
the fields that contain its aliases. A guarded field can also change through its references, and through an axis of the
matrix: `guarded_fields` finds what a guarded field depends on.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any, Final, Self

from toolbox.config import contract, guarded_fields, paths, presets, references
from toolbox.config.document import Document
from toolbox.config.guarded_fields import Guarded
from toolbox.config.paths import Path
from toolbox.ground.model import yaml_text
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.text import first_of

SOURCE: Final = "/var"
"""The command of a comment that overrides a field. In messages, it is the source of the overrides."""
BLOCK: Final = "ci"
FIELD: Final = "overridable"
_ANY_KEYS: Final = "**"
_WORKLOAD: Final = guarded_fields.WORKLOAD
_TARGET: Final = (references.MATRIX, "target")
# These fields determine which programs are executed, where, with which secrets, and what a run may cost.
_FORBIDDEN: Final[tuple[Path, ...]] = (
    *((block,) for block in ("secrets", "targets", "clusters", "results", BLOCK, presets.BLOCK)),
    *((*_WORKLOAD, field) for field in ("command", "cwd", "env", "files", "write")),
    (references.MATRIX, "max_cost"),
    (references.MATRIX, "max_cells"),
)
# If the name of an axis in one of these fields is a path, the axis sets the field at this path.
_AXES: Final = ("axes", "include", "zip")
_MAX_CHARACTERS: Final = 10_000
_MAX_VALUES: Final = 1_000
_DEEPEST: Final = 8
_LARGEST: Final = 2**63 - 1  # the largest integer of databases; Python cannot print an integer of thousands of digits
_MAX_FAULTS: Final = 3
_UNSTORABLE: Final = re.compile(r"[\x00\ud800-\udfff]")  # programs get no NUL, and UTF-8 has no half of a pair
_PLAIN: Final = (str, int, float, bool, type(None), dt.date)


class ForbiddenOverrides(UsageError):
    """The overrides of a comment change fields that a comment may not change.

    Args:
        faults: the paths in the comment, by the fault; an empty path if a field changes through another field.
    """

    def __init__(self, faults: Mapping[str, str]) -> None:
        self.faults = dict(faults)
        super().__init__(f"{SOURCE}: " + "\n  ".join(first_of(list(faults), _MAX_FAULTS)))


def check_value(value: object) -> None:
    """Raise a `ValueError` if an override in a comment is not plain data, is too large, or contains a reference."""
    parts = list(islice(_parts(value, 0), _MAX_VALUES + 1))
    if len(parts) > _MAX_VALUES or max(depth for _, depth in parts) > _DEEPEST:
        raise ValueError(f"the value has more than {_MAX_VALUES} parts, or is more than {_DEEPEST} levels deep")
    if any(len({str(key) for key in item}) < len(item) for item, _ in parts if isinstance(item, dict)):
        raise ValueError("the value contains a mapping with two keys of the same text, such as `1` and `'1'`")
    texts = [item for item, _ in parts if isinstance(item, str)]
    if sum(map(len, texts)) > _MAX_CHARACTERS:
        raise ValueError(f"the value has more than {_MAX_CHARACTERS} characters")
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
    rules = _Rules.of(before)
    values = {_keys(after, paths.parse(str(text))): (str(text), value) for text, value in overrides.root.items()}
    changed = set(_changed(before.root, after.root, ()))
    faults: dict[str, str] = {}
    for path, (text, value) in values.items():
        leaves = sorted(leaf for leaf in changed if leaf[: len(path)] == path) or [path]
        whole = path if isinstance(value, list) else None
        for leaf in leaves:
            faults |= dict.fromkeys(rules.faults(leaf, whole=whole), text)
    # Changes inside a preset are allowed: a preset shares its mappings with the fields that it has set, so a change of
    # these fields also changes the preset, which was already applied.
    aliased = (
        leaf
        for leaf in sorted(changed)
        if leaf[0] != presets.BLOCK and not any(leaf[: len(path)] == path for path in values)
    )
    for leaf in aliased:
        faults |= dict.fromkeys(rules.faults(leaf), "")
    if not faults:
        faults |= dict.fromkeys(_changed_by_reference(before, after, changed, rules.forbidden), "")
    if faults:
        raise ForbiddenOverrides(faults)


@dataclass(frozen=True, slots=True)
class _Rules:
    """What a comment may change.

    Args:
        source: the file in which a maintainer may allow a field.
        patterns: the fields that a comment may change.
        forbidden: the fields that no comment may change, even if a pattern matches.
    """

    source: str
    patterns: Sequence[Path]
    forbidden: Sequence[Path]

    @classmethod
    def of(cls, document: Document) -> Self:
        """Return the rules of a configuration."""
        from toolbox.config.contracts.ci import Contract  # pydantic is slow to import

        block = contract.validated(document, (BLOCK,), Contract)
        revisions = (workflow.revision for workflow in block.workflows.values())
        pinned = [tuple(map(str, paths.parse(field))) for field in revisions if field is not None]
        return cls(document.source, [*map(paths.parse, block.overridable)], [*_forbidden_paths(), *pinned])

    def faults(self, leaf: tuple[str, ...], *, whole: tuple[str, ...] | None = None) -> Iterator[str]:
        """Yield the reasons why a leaf may not be changed. A leaf of an axis also changes the field that the axis sets.

        Args:
            whole: the path of a list that the comment replaces: messages name the list instead of its items.
        """
        for path in (leaf, *_set_by_axis(leaf)):
            shown_path = whole if whole is not None and path[:-1] == whole else path
            text = paths.render(shown_path)
            if self._is_forbidden(path):
                yield f"a comment may never change `{text}`"
            elif not any(_matches(path, pattern) for pattern in self.patterns):
                yield (
                    f"a comment may not change `{text}`: a maintainer can allow this by `{BLOCK}: "
                    f"{{{FIELD}: [{yaml_text.dump_line(text)}]}}` in {self.source}"
                )

    def _is_forbidden(self, path: tuple[str, ...]) -> bool:
        """Tell whether a path is inside a field that no comment may change, or contains such a field."""
        return any(path[: len(forbidden)] == forbidden[: len(path)] for forbidden in self.forbidden)


def _parts(value: object, depth: int) -> Iterator[tuple[object, int]]:
    """Yield a value and all values inside it, including the keys of mappings, each with its depth."""
    yield value, depth
    if isinstance(value, dict | list) and depth <= _DEEPEST:
        inner = [*value, *value.values()] if isinstance(value, dict) else value
        for item in inner:
            yield from _parts(item, depth + 1)


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
    """Return the members of a container by the texts of their keys. The keys `1` and `'1'` have different texts."""
    if isinstance(value, Mapping):
        return {_key_text(key, value): item for key, item in value.items()}
    return {str(index): item for index, item in enumerate(value)} if isinstance(value, list) else {}


def _key_text(key: object, mapping: Mapping[Any, Any]) -> str:
    text = str(key)
    return text if isinstance(key, str) or text not in mapping else f"{text} ({type(key).__name__})"


def _leaves(value: Any, at: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    children = _children(value)
    for key, item in children.items():
        yield from _leaves(item, (*at, key))
    if not children:
        yield at


def _axes_of(leaf: tuple[str, ...]) -> tuple[str, ...]:
    """Return the name of the axis whose values a leaf changes, as a tuple with at most one item."""
    block = leaf[:2]
    if block == (references.MATRIX, "axes"):
        return leaf[2:3]
    return leaf[3:4] if block == (references.MATRIX, "include") else ()


def _set_by_axis(leaf: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the path of the field that an axis sets: the name of the axis, or the target for the axis `target`."""
    if leaf[:1] == (references.MATRIX,) and leaf[1:2] and leaf[1] in _AXES:
        for key in leaf[2:]:
            if key == _TARGET[-1]:
                yield _TARGET
            elif "." in key or "[" in key:
                yield tuple(map(str, paths.parse(key)))


def _forbidden_paths() -> tuple[Path, ...]:
    """Return the paths that no comment may change, including the paths that backends add."""
    from toolbox.ground.extensions import loading  # pydantic is slow to import

    added: list[Path] = []
    for target in loading.extending_targets():
        fields = getattr(target, "guarded_fields", target.workload_fields.model_fields)
        added += [(*_WORKLOAD, *paths.parse(field)) for field in fields]
    return (*_FORBIDDEN, *added)


def _matches(path: tuple[str, ...], pattern: Path) -> bool:
    """Tell whether a pattern matches a path, or a field that contains the path."""
    if not pattern:
        return True
    first, *rest = pattern
    if first == _ANY_KEYS:
        return bool(path) and any(_matches(path[index:], tuple(rest)) for index in range(len(path) + 1))
    return bool(path) and fnmatchcase(path[0], str(first).replace("[", "[[]")) and _matches(path[1:], tuple(rest))


def _changed_by_reference(
    before: Document, after: Document, changed: Iterable[tuple[str, ...]], forbidden: Sequence[Path]
) -> Iterator[str]:
    """Yield a fault for each field that no comment may change, if its value changes through a reference or an axis."""
    old, new = (guarded_fields.read(document, forbidden) for document in (before, after))
    axes = {axis for leaf in changed for axis in _axes_of(leaf)}
    for path, field in old.items():
        if field.value != new.get(path, Guarded("")).value or any(map(field.depends_on_axis, axes)):
            yield f"a comment may never change `{path}`, which refers to a field that this comment changes"
