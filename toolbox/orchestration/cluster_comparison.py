"""Holds a cluster that others use too against how the run found it. A run with a cleanup leaves nothing behind."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

import yaml

from toolbox.kubernetes.api.connection import Cluster
from toolbox.kubernetes.api.snapshots import Difference, Snapshot
from toolbox.model.errors import CheckFailed, InfrastructureError, describe
from toolbox.system import cancellation, environ, filesystem

_KEY_LENGTH: Final = 32
# Between two looks. The first are for what controllers do after a cleanup, the others for what is seen to go.
_PAUSES: Final = (1.0, 2.0)
_LONGER_PAUSES: Final = (4.0, 8.0, 15.0, 30.0)


class Comparison:
    """The comparison of one cluster.

    Args:
        name: of the cluster in the configuration.
    """

    def __init__(self, name: str, cluster: Cluster) -> None:
        self._name = name
        self._cluster = cluster

    def note(self, directory: Path) -> None:
        """Write down what there is, unless that was done before the run was resumed.

        Raises:
            StepError: the cluster cannot be looked at.
        """
        if not (file := directory / self._before).exists():
            filesystem.write_yaml(file, self._snapshot().as_json(), durable=True)

    def judge(self, noted_in: Path, directory: Path) -> None:
        """Hold what there is now against what was noted, and write both into a directory.

        Raises:
            CheckFailed: it names what was added, removed and changed.
        InfrastructureError: what was noted cannot be read.
            StepError: the cluster cannot be looked at.
        """
        file = noted_in / self._before
        try:
            before = Snapshot.of_json(yaml.safe_load(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
            reason = f"{file} is damaged, so nothing can be compared with it: {describe(error)}"
            raise InfrastructureError(reason) from error
        after = self._settled(before)
        file.replace(directory / file.name)  # who resumes the run after this finds a cluster that others have had
        filesystem.write_yaml(directory / f"{self._name}-after.yaml", after.as_json())
        if difference := Difference.between(before, after):
            raise CheckFailed(
                f"the cluster {self._name} has changed since the run began:\n{difference}", directory=directory
            )

    @property
    def _before(self) -> str:
        return f"{self._name}-before.yaml"

    def _settled(self, before: Snapshot) -> Snapshot:
        """Return what there is once what was deleted is gone."""
        for pause in (*_PAUSES, *_LONGER_PAUSES):
            after = self._snapshot()
            difference = Difference.between(before, after)
            if not difference or (pause in _LONGER_PAUSES and after.going.isdisjoint(difference.added)):
                return after
            cancellation.current().sleep(pause)
        return self._snapshot()

    def _snapshot(self) -> Snapshot:
        return Snapshot.take(self._cluster, _key())


def _key() -> bytes:
    """Return the key of this user's digests. It is in no artifact: with it one could try what a secret is."""
    file = environ.state_directory() / "snapshots.key"
    if not file.exists():
        mine = filesystem.write_bytes(
            file.with_name(f"{file.name}.{os.getpid()}"), secrets.token_bytes(_KEY_LENGTH), durable=True
        )
        with suppress(FileExistsError):  # of two who come first, one does
            os.link(mine, file)
        mine.unlink()
        filesystem.sync_directory(file.parent)
    return file.read_bytes()
