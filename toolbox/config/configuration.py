"""The configuration of a project as one value: what its layers leave, in their order.

Low to high: the file, `ci_presets.to_apply`, the presets asked for, the override files, `--overrides`. Nothing
changes a configuration: `replaced` returns another one.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Final, Self

from toolbox.config import contract, document, outside, paths, presets, references
from toolbox.config.contract import Model
from toolbox.config.document import Change, Document
from toolbox.config.paths import Path
from toolbox.config.references import Resolver
from toolbox.model.errors import ConfigurationError, ConfigurationFaults
from toolbox.system import environ

if TYPE_CHECKING:
    from pydantic import BaseModel

MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class Request:
    """What a person asks of the configuration of a project.

    Args:
        file: the YAML file of the project.
        presets: the presets to apply, in their order.
        override_files: files that hold a mapping from paths to values.
        overrides: a mapping from paths to values.
        contracts: folders of contracts, besides the library's own.
        overrides_source: what gave the overrides, for messages.
        is_from_outside: whether a comment gave the overrides; see `toolbox.config.outside`.
    """

    file: FilePath
    presets: Sequence[str] = ()
    override_files: Sequence[FilePath] = ()
    overrides: Mapping[str, Any] = field(default_factory=dict)
    contracts: Sequence[FilePath] = ()
    overrides_source: str = "--overrides"
    is_from_outside: bool = False


class View(Mapping[str, Any]):
    """A mapping of a configuration whose values are resolved when they are read, for templates.

    A template that does not name a reference never meets its faults.
    """

    def __init__(self, resolver: Resolver, values: Mapping[Any, Any], at: Path) -> None:
        self._resolver = resolver
        self._values = values
        self._at = at

    def __getitem__(self, key: str) -> Any:
        own, value = paths.child(self._values, key)
        at = (*self._at, own if isinstance(own, str | int) else str(own))
        if references.is_reference(value):
            return self._resolver.resolve(value, at=at)
        if isinstance(value, Mapping):
            return View(self._resolver, value, at)
        return self._resolver.resolve(value, at=at)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def follow(self, text: str) -> Any:
        """Return a text that stands outside of the configuration, with the references in it followed."""
        return self._resolver.resolve(text, at=self._at)

    @property
    def path(self) -> str:
        """Where the mapping stands in the configuration."""
        return paths.render(self._at)

    def resolved(self) -> Any:
        """Return the whole mapping, with all references in it followed."""
        return self._resolver.resolve(self._values, at=self._at)

    def __str__(self) -> str:
        return str(self.resolved())


class Configuration:
    """A configuration that nobody changes. References are followed when a value is asked for."""

    def __init__(self, source: Document, *, contracts: Sequence[FilePath] = (), root: FilePath | None = None) -> None:
        self._document = source
        # Where relative paths of the configuration begin: the directory that holds `config/`.
        self.root: Final = root or FilePath.cwd()
        self._resolver = Resolver(source)
        self._contracts = tuple(contracts)
        self._blocks: dict[tuple[Path, type[BaseModel]], Any] = {}

    @classmethod
    def load(cls, request: Request) -> Self:
        """Put the layers together.

        Raises:
            ConfigurationError: a file, a preset or an override is wrong.
        """
        base = document.load(request.file)
        for name in [*presets.to_apply(base), *request.presets]:
            presets.apply(base, name)
        for file in request.override_files:
            _override(base, document.load(file, what="the override file"), f"override file {file}")
        given = Document(copy.deepcopy(dict(request.overrides)), request.overrides_source)
        before = base.copy() if request.is_from_outside else None
        _override(base, given, request.overrides_source)
        if before is not None:
            outside.check(before, base, given)
        return cls(base, contracts=request.contracts, root=request.file.absolute().parent.parent)

    @property
    def source(self) -> str:
        """The name of the file."""
        return self._document.source

    @property
    def changes(self) -> Sequence[Change]:
        """Every change that a preset, an override or `set_config` made, in its order."""
        return tuple(self._document.changes)

    def get(self, path: str, default: object = MISSING) -> Any:
        """Return the value at a path, references followed; a secret is a `Secret`.

        Args:
            default: what to return where there is no such field, instead of an error.

        Raises:
            ConfigurationError: there is no such field, or a reference is wrong.
        """
        try:
            return self._resolver.find(paths.parse(path))
        except paths.PathError:
            if default is MISSING:
                raise
            return default

    def block(self, path: str, model: type[Model]) -> Model:
        """Return a block of the configuration as its model, validated once. A missing block, or null, has no fields.

        Raises:
            ConfigurationError: all that is wrong with it, each fault with its file and line.
        """
        return self._validated(paths.parse(path), model)

    def _validated(self, path: Path, model: type[Model], *, or_null: bool = False) -> Model:
        if (path, model) not in self._blocks:
            self._blocks[path, model] = contract.validated(self._document, path, model, or_null=or_null)
        block: Model = self._blocks[path, model]
        return block

    def written(self, path: str) -> Any:
        """Return the value at a path as the file or a layer writes it, references not followed."""
        return copy.deepcopy(self._document.find(paths.parse(path)))

    def replaced(self, path: str, value: object, *, layer: str) -> Configuration:
        """Return a configuration with another value in one existing field."""
        changed = self._document.copy()
        changed.set(paths.parse(path), copy.deepcopy(value), layer=layer, location=None)
        return Configuration(changed, contracts=self._contracts, root=self.root)

    def overlaid(self, values: Mapping[str, object], cell: Mapping[str, object]) -> Configuration:
        """Return what a cell of the matrix sees: other values in some fields, and its settings as `cell`.

        Raises:
            ConfigurationError: there is no such field.
        """
        changed = self._document.overlaid({paths.parse(path): value for path, value in values.items()}, {"cell": cell})
        return Configuration(changed, contracts=self._contracts, root=self.root)

    def view(self) -> View:
        """Return the whole configuration as a mapping for templates."""
        return View(self._resolver, self._document.root, ())

    def check(self) -> None:
        """Check every contract and every reference.

        Raises:
            ConfigurationError: what is wrong, all faults of the contracts at once.
        """
        self.check_contracts()
        self._resolver.resolve(self._document.root, at=())

    def check_contracts(self) -> None:
        """Check every contract, and the references in the blocks that have one. A missing block is not checked.

        A block of the library may be null, for a preset to fill in; a project says in its contract what may be null.

        Raises:
            ConfigurationError: what is wrong, all faults at once.
        """
        faults: list[str] = []
        for folder in (contract.LIBRARY, *self._contracts):
            or_null = not contract.in_library(folder)
            for path, model in contract.find([folder]).items():
                if contract.is_given(self._document, path, or_null=or_null):
                    try:
                        self._validated(path, model, or_null=or_null)
                    except ConfigurationError as error:
                        faults += error.faults
        if faults:
            raise ConfigurationFaults(faults)

    def check_secrets(self) -> None:
        """Check that every secret can be read.

        Raises:
            ConfigurationError: the first that cannot.
        """
        for path in self._resolver.secrets():
            self._resolver.find(path).reveal()

    def secret_values(self) -> Iterator[str]:
        """Yield what must never be shown: the secrets that can be read, and the variables of `secrets.env`."""
        for name in self._secret_variables():
            if value := environ.get(name):
                yield value
        for path in self._resolver.secrets():
            try:
                yield self._resolver.find(path).reveal()
            except ConfigurationError:
                continue

    def _secret_variables(self) -> list[str]:
        try:
            names = self.get("secrets.env", default=None)
        except ConfigurationError:
            return []
        return [str(name) for name in names] if isinstance(names, list) else []

    def location(self, path: str) -> str:
        """Return `file:line` of a field."""
        return self._document.where(paths.parse(path))

    def history(self, path: str) -> list[Change]:
        """Return the changes that made the value at a path what it is, first to last.

        A change counts when it was made to the field, to something around it or to something inside it, under
        whichever path.
        """
        wanted = paths.parse(path)
        slots = set(self._document.slots(wanted))
        return [
            change for change in self._document.changes if change.slot in slots or change.path[: len(wanted)] == wanted
        ]


def _override(base: Document, overrides: Document, layer: str) -> None:
    for text, value in overrides.root.items():
        location = overrides.location((text,))
        try:
            base.set(paths.parse(str(text)), value, layer=layer, location=location)
        except paths.PathError as error:
            raise ConfigurationError(f"{location or layer}: {error.detail}") from None
