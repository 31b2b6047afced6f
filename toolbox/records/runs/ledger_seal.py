"""Seals lines of a ledger, so that this user can tell them from lines that other people have written.

A run directory may come from elsewhere, for example as an artifact of a CI job. A line of its ledger describes how to
delete a resource: by a program, with a kubeconfig, or with the credentials of this user. The seal is a keyed digest
(HMAC-SHA256, RFC 2104) of the line. The key is in the state directory, and never in a run directory.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
import tempfile
from pathlib import Path
from typing import Final

from toolbox.ground.model.errors import UsageError
from toolbox.ground.system import environ, filesystem

log = logging.getLogger(__name__)

_FILE: Final = "ledger.key"
_KEY_BYTES: Final = 32
_FIELD: Final = b', "seal": "'
_END: Final = b'"}'
# The key of this process if the state directory cannot be written. Other processes do not accept its seals.
_TEMPORARY_KEY: Final = secrets.token_bytes(_KEY_BYTES)


def sealed(line: bytes) -> bytes:
    """Return a JSON object on one line with the additional field `seal`."""
    try:
        key = _read_key() or _create_key()
    except (OSError, UsageError) as error:
        log.warning("after a crash, the resources of this run must be deleted by hand: %s", error)
        key = _TEMPORARY_KEY
    return line[:-1] + _FIELD + _digest(key, line) + _END


def is_sealed(line: bytes) -> bool:
    """Return whether this user has sealed a line on this machine, and the line has not been changed."""
    content, field, seal = line.rpartition(_FIELD)
    if not field or not seal.endswith(_END):
        return False
    try:
        key = _read_key()
    except (OSError, UsageError):
        key = b""
    digests = [_digest(each, content + b"}") for each in (key, _TEMPORARY_KEY) if each]
    return any(hmac.compare_digest(digest, seal[: -len(_END)]) for digest in digests)


def _digest(key: bytes, content: bytes) -> bytes:
    return hmac.new(key, content, hashlib.sha256).hexdigest().encode()


def _file() -> Path:
    return environ.state_directory() / _FILE


def _read_key() -> bytes:
    """Return the key of this user; nothing if there is none yet."""
    try:
        key = _file().read_bytes()
    except FileNotFoundError:
        return b""
    return key if len(key) == _KEY_BYTES else b""


def _create_key() -> bytes:
    """Create the key, and return it. If another process creates the key at the same time, its key is returned."""
    file = _file()
    filesystem.make_durable_directory(file.parent)
    with tempfile.NamedTemporaryFile(buffering=0, dir=file.parent, prefix=f".{_FILE}.") as scratch:
        scratch.write(secrets.token_bytes(_KEY_BYTES))
        os.fsync(scratch.fileno())
        try:
            os.link(scratch.name, file)
        except FileExistsError:
            log.debug("another process has created %s", file)
    filesystem.sync_directory(file.parent)
    if not (key := _read_key()):
        raise OSError(f"{file} is damaged: remove it")
    return key
