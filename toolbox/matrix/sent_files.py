"""Digests of the files that are sent with workloads, so that a resumed run notices changed files.

Each source is read only once, although many cells may send it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from toolbox.targets import staging


@dataclass(slots=True)
class SentFiles:
    """The files and folders to send with the workloads of a plan.

    Args:
        root: the directory to which the paths in `digests` are relative.
    """

    root: Path
    _digests: dict[Path, dict[str, str]] = field(default_factory=dict)
    _fingerprints: dict[Path, str] = field(default_factory=dict)

    def of(self, sources: Mapping[str, Path]) -> list[list[str]]:
        """Return the name and a fingerprint of each file or folder that is sent with a workload.

        Raises:
            ValueError: a file cannot be read.
        """
        for source in sources.values():
            if source not in self._digests:
                try:
                    self._digests[source] = staging.digests(source)
                except OSError as error:
                    raise ValueError(str(error)) from None
                content = json.dumps(self._digests[source])
                self._fingerprints[source] = hashlib.sha256(content.encode()).hexdigest()
        return [[name, self._fingerprints[source]] for name, source in sorted(sources.items())]

    def digests(self) -> dict[str, str]:
        """Return the digest of each file, by path."""
        by_path = {}
        for source, digests in sorted(self._digests.items()):
            path = source.relative_to(self.root) if source.is_relative_to(self.root) else source
            by_path.update({str(path / name): digest for name, digest in digests.items()})
        return by_path
