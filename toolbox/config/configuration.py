"""The configuration of a project, as one immutable value.

Later layers override earlier layers: the file, the local file beside it, `ci_presets.to_apply`, the requested presets,
the override files, `--overrides`. `replaced` returns a changed copy.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Final, Self

from toolbox.config import ambiguity, comment_limits, contract, document, paths, presets, references
from toolbox.config.contract import Model
from toolbox.config.document import Change, Document
from toolbox.config.paths import Path
from toolbox.config.references import MISSING, Resolver
from toolbox.ground.model.errors import ConfigurationError, ConfigurationFaults
from toolbox.ground.system import environ

if TYPE_CHECKING:
    from pydantic import BaseModel

_JOBS: Final = "ci.jobs"


@dataclass(frozen=True, slots=True)
class Request:
    """The request to load a configuration.

    Args:
        trusted_overrides: the new values of fields that the configuration itself lists, for example for a job in
            `ci.jobs`, by path. They are applied before `overrides`, and may change any field.
        overrides: the new values by path.
        contracts: the folders with the contracts of the matrix and of the project.
        is_from_outside: whether the overrides come from a comment; see `toolbox.config.comment_limits`.
        preset_reasons: why presets were selected, by preset, for explanations; nothing for those that a person named.
    """

    file: FilePath
    presets: Sequence[str] = ()
    override_files: Sequence[FilePath] = ()
    overrides: Mapping[str, Any] = field(default_factory=dict)
    contracts: Sequence[FilePath] = ()
    is_from_outside: bool = False
    trusted_overrides: Mapping[str, Any] = field(default_factory=dict)
    preset_reasons: Mapping[str, str] = field(default_factory=dict)


class View(Mapping[str, Any]):
    """A mapping of a configuration, for templates. The references in a value are resolved when the value is read.

    A faulty reference is an error only if the template uses its field.
    """

    def __init__(self, resolver: Resolver, values: Mapping[Any, Any], at: Path) -> None:
        self._resolver = resolver
        self._values = values
        self._at = at

    def __getitem__(self, key: str) -> Any:
        actual, value = paths.child(self._values, key)
        at = (*self._at, actual if isinstance(actual, str | int) else str(actual))
        if references.is_reference(value):
            return self._resolver.resolve(value, at=at)
        if isinstance(value, Mapping):
            return View(self._resolver, value, at)
        return self._resolver.resolve(value, at=at)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def resolve_text(self, text: str) -> Any:
        """Resolve the references in a text that is not part of the configuration, such as command_args."""
        return self._resolver.resolve(text, at=self._at)

    @property
    def path(self) -> str:
        """The path of the mapping in the configuration."""
        return paths.render(self._at)

    def resolved(self) -> Any:
        """Return the whole mapping with all references resolved."""
        return self._resolver.resolve(self._values, at=self._at)

    def __str__(self) -> str:
        return str(self.resolved())


class Configuration:
    """An immutable configuration. The references in a value are resolved when the value is read."""

    def __init__(
        self,
        source: Document,
        *,
        contracts: Sequence[FilePath] = (),
        root: FilePath | None = None,
        override_files: Sequence[Document] = (),
    ) -> None:
        self._document = source
        self._override_files = tuple(override_files)
        # The directory that contains `config/`. Relative paths in the configuration are relative to this directory.
        self.root: Final = root or FilePath.cwd()
        self._resolver = Resolver(source)
        self._contracts = tuple(contracts)
        self._blocks: dict[tuple[Path, type[BaseModel]], Any] = {}

    @classmethod
    def load(cls, request: Request) -> Self:
        """Load the file, and apply the presets and overrides.

        Raises:
            ConfigurationError: a file, a preset or an override is wrong.
        """
        base = document.load(request.file)
        base.accepts_null = lambda path: contract.accepts_null(path, request.contracts)
        base.unaddable = lambda path: contract.unaddable(base, path, request.contracts)
        local = request.file.with_suffix(f".local{request.file.suffix}")
        override_files = []
        if local.exists():
            override_files.append(document.load(local, what="the local file"))
            _override(base, override_files[-1], "local file", open_in=request.contracts)
        for name in [*presets.to_apply(base), *request.presets]:
            presets.apply(base, name, reason=request.preset_reasons.get(name, ""))
        for file in request.override_files:
            override_files.append(document.load(file, what="the override file"))
            _override(base, override_files[-1], f"override file {file}")
        _override(base, Document(copy.deepcopy(dict(request.trusted_overrides)), _JOBS), _JOBS)
        source = comment_limits.SOURCE if request.is_from_outside else "--overrides"
        overrides = Document(copy.deepcopy(dict(request.overrides)), source)
        before = base.copy() if request.is_from_outside else None
        _override(base, overrides, source)
        if before is not None:
            comment_limits.check(before, base, overrides)
        root = request.file.absolute().parent.parent
        return cls(base, contracts=request.contracts, root=root, override_files=override_files)

    @property
    def source(self) -> str:
        """The name of the configuration file, for messages."""
        return self._document.source

    @property
    def changes(self) -> Sequence[Change]:
        """All changes by presets, overrides and `set_config`, in the order in which they were made."""
        return tuple(self._document.changes)

    def get(self, path: str, default: object = MISSING) -> Any:
        """Return the value at a path with its references resolved. A secret is a `Secret`.

        Args:
            default: the value to return if the field does not exist. Without a default, a missing field is an error.

        Raises:
            ConfigurationError: the field does not exist, or a reference is wrong.
        """
        return self._resolver.find(paths.parse(path), default=default)

    def block(self, path: str, model: type[Model]) -> Model:
        """Return a block as its validated model. A missing block, or null, is validated as an empty mapping.

        Raises:
            ConfigurationError: the message names every fault of the block with its file and line.
        """
        return self._validated(paths.parse(path), model)

    def _validated(self, path: Path, model: type[Model], *, or_null: bool = False) -> Model:
        if (path, model) not in self._blocks:
            self._blocks[path, model] = contract.validated(self._document, path, model, or_null=or_null)
        block: Model = self._blocks[path, model]
        return block

    def written(self, path: str) -> Any:
        """Return the value at a path with unresolved references."""
        return copy.deepcopy(self._document.find(paths.parse(path)))

    def replaced(self, path: str, value: object, *, layer: str) -> Configuration:
        """Return a copy of the configuration with a new value for one existing field."""
        changed = self._document.copy()
        changed.set(paths.parse(path), copy.deepcopy(value), layer=layer, location=None)
        files = self._override_files
        return Configuration(changed, contracts=self._contracts, root=self.root, override_files=files)

    def overlaid(self, values: Mapping[str, object], cell: Mapping[str, object]) -> Configuration:
        """Return the configuration of one cell of the matrix.

        Args:
            values: the new values of existing fields, by path.
            cell: the settings of the cell, which become the top-level field `cell`.

        Raises:
            ConfigurationError: a field of `values` does not exist.
        """
        changed = self._document.overlaid({paths.parse(path): value for path, value in values.items()}, {"cell": cell})
        return Configuration(changed, contracts=self._contracts, root=self.root)

    def view(self) -> View:
        """Return the whole configuration as a mapping for templates."""
        return View(self._resolver, self._document.root, ())

    def ambiguous_scalars(self) -> list[str]:
        """Return a line for each unquoted scalar of the files that may have been meant as text, such as `3.10`."""
        return ambiguity.warnings(self._document, self._override_files, self._contracts)

    def check(self) -> None:
        """Check every contract and every reference.

        Raises:
            ConfigurationError: the message names all faults that the contracts found; if they found none, the faulty
                references.
        """
        self.check_contracts()
        self._resolver.resolve(self._document.root, at=())

    def check_contracts(self) -> None:
        """Check each block that has a contract, and the references in the block. A missing block is not checked.

        A block with a contract of the library may be null, so that a preset can set the block. The contract of a
        project decides itself whether its block may be null.

        Raises:
            ConfigurationError: the message names all faults.
        """
        faults: list[str] = []
        for folder in (contract.LIBRARY, *self._contracts):
            is_ours = contract.in_library(folder)
            for path, file in contract.files(folder).items():
                is_there = contract.has_block(self._document, path, or_null=not is_ours)
                if is_ours and not is_there:
                    continue  # without the block, the contract is not even imported
                model = contract.load(file)  # a broken contract of a project is reported even without the block
                if is_there:
                    try:
                        self._validated(path, model, or_null=not is_ours)
                    except ConfigurationError as error:
                        faults += error.faults
        if faults:
            raise ConfigurationFaults(faults)

    def check_secrets(self, *, except_in: Collection[str] = ()) -> None:
        """Raise a `ConfigurationError` that names the first secret that cannot be read, if there is one.

        Args:
            except_in: top-level blocks whose secrets are not needed.
        """
        for path in self._resolver.secrets():
            if path[0] not in except_in:
                self._resolver.find(path).reveal()

    def secret_values(self) -> Iterator[str]:
        """Yield all values that must be masked: readable secrets, and environment variables listed in `secrets.env`."""
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
        """Return `file:line` of the value at a path."""
        return self._document.where(paths.parse(path))

    def history(self, path: str) -> list[Change]:
        """Return the changes of the field at a path, of its enclosing fields and of the fields inside it, oldest first.

        A change of a shared container is included even if the change was made through another path.
        """
        keys = paths.parse(path)
        slots = set(self._document.slots(keys))
        return [change for change in self._document.changes if change.slot in slots or change.path[: len(keys)] == keys]


def _override(base: Document, overrides: Document, layer: str, *, open_in: Sequence[FilePath] = ()) -> None:
    """Change fields of a document.

    Args:
        open_in: the folders of the contracts that may declare a block open, so that entries may be added to it.
    """
    for text, value in overrides.root.items():
        location = overrides.location((text,))
        try:
            path = paths.parse(str(text))
            change = base.add if contract.is_open(path[:-1], open_in) else base.set
            change(path, value, layer=layer, location=location)
        except paths.PathError as error:
            raise ConfigurationError(f"{location or layer}: {error.detail}") from None
