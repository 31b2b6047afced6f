"""Finds unquoted scalars of a configuration that a person may have meant as text, such as the version `3.10`.

`toolbox.ground.model.yaml_scalars` finds the scalars by their text. This module leaves out those that a contract reads
as they are meant: `expires: 2027-01-31` is a date, and `cost_per_hour: 2.40` is a number.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, Final

from toolbox.config import contract, paths, presets
from toolbox.config.document import Document
from toolbox.config.paths import Path
from toolbox.ground.model.errors import ConfigurationError
from toolbox.ground.model.yaml_scalars import AmbiguousScalar

# Fields for decimal numbers in any block. Checks have models of their own, which no contract knows.
_BOUNDS: Final = frozenset({"lower", "upper"})
_PRESET_KEYS: Final = 3  # `ci_presets`, the name of a preset, and the field that it sets
_OTHER: Final = {"topgallant": "a value that no field has"}


@dataclass(frozen=True, slots=True)
class _Setting:
    """The value of a field that contains an ambiguous scalar.

    Args:
        inner: the path of the scalar inside the value.
    """

    field: Path
    value: Any
    inner: Path

    @property
    def path(self) -> Path:
        """The path of the scalar in the configuration."""
        return (*self.field, *self.inner)


def warnings(configuration: Document, overrides: Sequence[Document], contracts: Sequence[FilePath]) -> list[str]:
    """Return a line for each ambiguous scalar of a configuration, with its place and the quoted form.

    The first lines are about numbers that YAML reads as other numbers, the next about fields of the matrix.

    Args:
        configuration: the file, with the presets and overrides applied.
        overrides: the documents that map paths to values.
        contracts: the folders with the contracts of the project.
    """
    lines: dict[str, tuple[bool, bool]] = {}  # with the order of each line
    clear: dict[tuple[object, ...], bool] = {}  # the items of a list have the same contract, which is slow to ask
    for source in (configuration, *overrides):
        for scalar, line in zip(source.ambiguous, source.ambiguous_lines(), strict=True):
            setting = _setting(source, scalar, is_override=source is not configuration)
            fields = tuple(None if isinstance(key, int) else key for key in setting.path) if setting else scalar.keys
            kind = (fields, type(scalar.value), scalar.is_key, scalar.is_other_number)
            if kind not in clear:
                clear[kind] = _is_clear(scalar, setting, configuration, contracts)
            if not clear[kind]:
                lines.setdefault(line, (not scalar.is_other_number, fields[:1] != ("matrix",)))
    return sorted(lines, key=lines.__getitem__)


def _setting(source: Document, scalar: AmbiguousScalar, *, is_override: bool) -> _Setting | None:
    """Return the field that a scalar sets; None if the path of the field is wrong, which other code reports."""
    count = 1 if is_override else _PRESET_KEYS if scalar.keys[:1] == (presets.BLOCK,) else 0
    try:
        if len(scalar.keys) < count or not count:
            return _Setting(scalar.keys, scalar.value, ())
        return _Setting(paths.parse(str(scalar.keys[count - 1])), source.find(scalar.keys[:count]), scalar.keys[count:])
    except paths.PathError:
        return None


def _is_clear(
    scalar: AmbiguousScalar, setting: _Setting | None, configuration: Document, contracts: Sequence[FilePath]
) -> bool:
    """Return whether a contract accepts the value, and either refuses the text or reads text and value as equal."""
    if setting is None or scalar.is_key or scalar.is_other_number:
        return False
    if setting.path and setting.path[-1] in _BOUNDS and isinstance(scalar.value, float):
        return True
    for block, file in _contracts_of(setting.path, contracts):
        as_value, as_text, as_other = (
            _outcome(configuration, block, file, setting, value) for value in (scalar.value, scalar.text, _OTHER)
        )
        if as_other == as_value:  # the contract ignores the field, or the block has another fault
            continue
        return as_text == as_value or (isinstance(as_text, tuple) and not isinstance(as_value, tuple))
    return False


def _contracts_of(at: Path, contracts: Sequence[FilePath]) -> Iterator[tuple[Path, FilePath]]:
    """Yield the path and the file of each contract whose block contains a path."""
    for folder in (contract.LIBRARY, *contracts):
        for path, file in contract.files(folder).items():
            if at[: len(path)] == path:
                yield path, file


def _outcome(configuration: Document, block: Path, file: FilePath, setting: _Setting, value: Any) -> Any:
    """Return the validated block as text if the scalar had another value; the faults, as a tuple, if it is wrong."""
    try:
        changed = configuration.overlaid({setting.field: _replaced(setting.value, setting.inner, value)}, {})
        return repr(contract.validated(changed, block, contract.load(file)))  # `==` would read the secrets of a model
    except ConfigurationError as error:
        return error.faults


def _replaced(container: Any, inner: Path, value: Any) -> Any:
    """Return a copy of a value in which the value at a path is replaced. Only the containers along it are copied."""
    if not inner:
        return value
    changed = copy.copy(container)
    key, below = paths.child(container, inner[0])
    changed[key] = _replaced(below, inner[1:], value)
    return changed
