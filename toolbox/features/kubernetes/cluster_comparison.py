"""Checks that a run with a cleanup leaves a shared cluster as it was before the run."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

import yaml

from toolbox.features.kubernetes.api.connection import Cluster
from toolbox.features.kubernetes.api.snapshots import Difference, Snapshot
from toolbox.ground.model import yaml_text
from toolbox.ground.model.errors import CheckFailed, InfrastructureError, describe
from toolbox.ground.system import cancellation, environ, filesystem

_KEY_LENGTH: Final = 32
# Seconds to wait before the next snapshot while the snapshots after the cleanup differ from the one before the run. The
# first pauses let controllers react to the cleanup. Longer pauses follow only while added objects are being deleted.
_PAUSES: Final = (1.0, 2.0)
_LONGER_PAUSES: Final = (4.0, 8.0, 15.0, 30.0)


class Comparison:
    """Compares the objects of a cluster before and after a run."""

    def __init__(self, name: str, cluster: Cluster) -> None:
        self._name = name
        self._cluster = cluster

    def write_before(self, directory: Path) -> None:
        """Write a snapshot of the cluster before the run, unless the directory already contains one.

        Raises:
            StepError: the objects of the cluster cannot be read.
        """
        if not (file := directory / self._before).exists():
            filesystem.write_text(file, yaml_text.dump(self._snapshot().as_json()), durable=True)

    def judge(self, before_directory: Path, directory: Path) -> None:
        """Compare the cluster with the snapshot in `before_directory`, and put both snapshots into `directory`.

        Raises:
            CheckFailed: the message names the objects that were added, removed and changed.
            InfrastructureError: the snapshot in `before_directory` cannot be read.
            StepError: the objects of the cluster cannot be read.
        """
        file = before_directory / self._before
        try:
            before = Snapshot.of_json(yaml.safe_load(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
            reason = f"{file} is damaged, so nothing can be compared with it: {describe(error)}"
            raise InfrastructureError(reason) from error
        after = self._settled(before)
        # Move the old snapshot, so that a resumed run takes a new one: other runs may change the cluster from now on.
        file.replace(directory / file.name)
        filesystem.write_text(directory / f"{self._name}-after.yaml", yaml_text.dump(after.as_json()))
        if difference := Difference.between(before, after):
            raise CheckFailed(
                f"the cluster {self._name} has changed since the run began:\n{difference}", directory=directory
            )

    @property
    def _before(self) -> str:
        return f"{self._name}-before.yaml"

    def _settled(self, before: Snapshot) -> Snapshot:
        """Return a snapshot that equals `before`, or the last snapshot after waiting for deletions to finish."""
        for pause in (*_PAUSES, *_LONGER_PAUSES):
            after = self._snapshot()
            difference = Difference.between(before, after)
            if not difference or (pause in _LONGER_PAUSES and after.deleted.isdisjoint(difference.added)):
                return after
            cancellation.current().sleep(pause)
        return self._snapshot()

    def _snapshot(self) -> Snapshot:
        return Snapshot.take(self._cluster, _key())


def _key() -> bytes:
    """Return this user's key for the digests in snapshots.

    The key is not written into artifacts, because a reader with the key could guess secrets and compare digests.
    """
    file = environ.state_directory() / "snapshots.key"
    if not file.exists():
        temporary = filesystem.write_bytes(
            file.with_name(f"{file.name}.{os.getpid()}"), secrets.token_bytes(_KEY_LENGTH), durable=True
        )
        with suppress(FileExistsError):  # another process was faster: both processes use its key
            os.link(temporary, file)
        temporary.unlink()
        filesystem.sync_directory(file.parent)
    return file.read_bytes()
