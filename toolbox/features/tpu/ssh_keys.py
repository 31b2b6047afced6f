"""Makes the SSH key with which a run, or the commands of a user, log in to workers.

The private half stays in the state directory of the user. The public half goes into the metadata of the TPU. A run that
is resumed on another machine does not have its key there, and cannot reach the workers that it created before.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolbox.features.tpu import tpu_request
from toolbox.ground.model.errors import InfrastructureError
from toolbox.ground.model.resources import Owner, ResourceLedger
from toolbox.ground.system import environ, filesystem, processes
from toolbox.records.runs import ledger as ledgers

_FOLDER: Final = "tpu-keys"
_COMMANDS: Final = "commands"  # the key of the commands outside a run; the name of a run begins with a date
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
_KEY: Final = "id_ed25519"
_KNOWN_HOSTS: Final = "known_hosts"
_ABANDONED_SECONDS: Final = 86400.0


@dataclass(frozen=True, slots=True)
class SshKey:
    """An SSH key.

    Args:
        private: the file of the private half.
        public: the public half, as `ssh-ed25519 ...`.
        known_hosts: the file in which the host key of each worker is recorded at the first connection.
    """

    private: Path
    public: str
    known_hosts: Path

    def metadata(self, user: str) -> str:
        """Return the value of the metadata `ssh-keys` with which the workers accept the key for a user."""
        return f"{user}:{self.public}"


def of_owner(owner: Owner, mark: Path) -> SshKey:
    """Return the key of a run, or of the commands of this user. Create the key if it is missing.

    Args:
        mark: the directory of the step, for the process that creates the key.

    Raises:
        InfrastructureError: the key cannot be created.
    """
    folder = _folder(owner)
    try:
        filesystem.make_durable_directory(folder)
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / f"{_KEY}.pub").is_file():
                _remove_abandoned()
                _create(folder, mark)
        finally:
            os.close(lock)
        public = (folder / f"{_KEY}.pub").read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise InfrastructureError(f"the SSH key in {folder} cannot be created or read: {error}") from error
    return SshKey(folder / _KEY, public, folder / _KNOWN_HOSTS)


def remove_unused(ledger: ResourceLedger) -> None:
    """Remove the key of a run, unless a TPU on its ledger may exist. The key of the commands outside a run stays."""
    kinds = [entry.resource.kind for entry in ledger.open_resources() if not entry.is_absent]
    if ledger.owner.run and not any(kind in tpu_request.KINDS for kind in kinds):
        shutil.rmtree(_folder(ledger.owner), ignore_errors=True)


def _folder(owner: Owner) -> Path:
    """Return the directory of a key. A name such as `..`, which could lead elsewhere, is replaced by its digest."""
    name = owner.run or _COMMANDS
    if not _NAME.fullmatch(name):
        name = hashlib.sha256(filesystem.encode(name)).hexdigest()
    return environ.state_directory() / _FOLDER / name


def _remove_abandoned() -> None:
    """Remove old keys of runs without open resources, such as killed runs whose ledger was lost."""
    names_in_use = {_COMMANDS, *(run.name for run in ledgers.runs())}
    for folder in (environ.state_directory() / _FOLDER).iterdir():
        with suppress(FileNotFoundError):  # another process removes the folder too
            if folder.name not in names_in_use and time.time() - folder.stat().st_mtime > _ABANDONED_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)


def _create(folder: Path, mark: Path) -> None:
    """Create the key in another directory first, so that no half of a key remains after a crash."""
    (folder / _KEY).unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        file = Path(scratch) / _KEY
        lines: list[str] = []
        completed = processes.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "topgallant", "-f", str(file)],
            env=processes.environment(mark),
            on_line=lines.append,
        )
        if completed.returncode != 0:
            raise InfrastructureError(f"ssh-keygen ended with status {completed.returncode}: {' '.join(lines[-3:])}")
        file.replace(folder / _KEY)
        file.with_suffix(".pub").replace(folder / f"{_KEY}.pub")
