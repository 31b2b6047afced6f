"""Decides which cells may reuse the result of an earlier run, and computes the keys by which such results are found.

A key is a digest of everything that determines the result and that Topgallant knows: the workload with its files and
environment, the checks and metrics, the machine or accelerator with its runtime, and the versions of Topgallant and of
its Python. `matrix.reuse_results` turns the reuse on, and is the largest age of a result.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Self

from toolbox.ground.extensions.protocols import IdentifiableTarget
from toolbox.ground.model.errors import DamagedFile, describe
from toolbox.ground.model.workloads import Workload
from toolbox.ground.system import filesystem
from toolbox.matrix.targets import PlannedTarget
from toolbox.records.runs.layout import RunDirectory

_DISTRIBUTION: Final = "topgallant"
_LENGTH: Final = 40  # hexadecimal digits


@dataclass(frozen=True, slots=True)
class Reuse:
    """The keys of a cell, and the earlier result that the cell reuses.

    Args:
        keys: the key of the cell on each target that can identify itself, by the name of the target.
        run: the name of the earlier run; empty if the cell is executed.
        directory: the directory of the earlier run.
    """

    keys: Mapping[str, str] = field(default_factory=dict)
    run: str = ""
    directory: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the part of the cell in `plan.json`."""
        return {"keys": dict(self.keys), "run": self.run, "directory": self.directory}

    @classmethod
    def parse(cls, content: Mapping[str, Any]) -> Self:
        """Return the object that `as_json` has written."""
        keys = {str(name): str(key) for name, key in content["keys"].items()}
        return cls(keys, str(content["run"]), str(content["directory"]))


def keys(digest: str, workload: Workload, targets: Iterable[PlannedTarget]) -> Reuse:
    """Return the keys of a cell. A cell has no key on a target that cannot identify itself.

    A cell that uses a directory of the target has no key, because the files there are unknown.

    Args:
        digest: the digest of the workload, the checks and the metrics.
    """
    if workload.cwd is not None:
        return Reuse()
    identities = {target.name: _identity(target, workload) for target in targets}
    return Reuse({name: _key(digest, identity) for name, identity in identities.items() if identity is not None})


def frozen(directory: Path) -> dict[str, Reuse]:
    """Return what `plan.json` of a run says about the reuse of results, by the id of the cell.

    Raises:
        DamagedFile: `plan.json` cannot be read.
    """
    file = RunDirectory(directory).plan
    try:
        cells = filesystem.read_json(file)["cells"] if file.exists() else []
        return {str(cell["id"]): Reuse.parse(cell["reuse"]) for cell in cells if "reuse" in cell}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedFile(file, describe(error)) from None


def _identity(target: PlannedTarget, workload: Workload) -> str | None:
    description = target.description
    if not isinstance(description, IdentifiableTarget):
        return None
    return description.identity(target.name, workload)


def _key(digest: str, identity: str) -> str:
    versions = [_version(), platform.python_version()]
    return hashlib.sha256(json.dumps([digest, identity, versions]).encode()).hexdigest()[:_LENGTH]


def _version() -> str:
    """Return the version of Topgallant; empty in a checkout that is not installed."""
    try:
        return metadata.version(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return ""
