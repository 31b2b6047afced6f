"""Takes what a workload left out of an archive, which is not to be trusted: nothing of it lands elsewhere."""

from __future__ import annotations

import logging
import tarfile
from pathlib import Path
from typing import BinaryIO

log = logging.getLogger(__name__)


def extract(stream: BinaryIO, directory: Path) -> None:
    """Extract an archive into a directory. What would land outside of it is left out, with a warning.

    Raises:
        OSError: a file cannot be written.
        tarfile.TarError: it is not whole.
    """
    with tarfile.open(fileobj=stream) as content:
        content.extractall(directory, filter=_safely)  # noqa: S202  # the filter is ours


def _safely(member: tarfile.TarInfo, directory: str) -> tarfile.TarInfo | None:
    if member.islnk():  # there is none in our archives; tarfile would make it of a link that was left out
        log.warning("%s is left out: it is a hard link", member.name)
        return None
    try:
        return tarfile.data_filter(member, directory)
    except tarfile.FilterError as error:
        log.warning("%s is left out: %s", member.name, error)
        return None
