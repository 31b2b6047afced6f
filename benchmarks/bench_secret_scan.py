"""Compares the search for secrets before an export with SHA-256 of the same files: logs, and binary files.

The search also computes the SHA-256, so the ratio cannot be below 1. Twice the size must take twice the time.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from pathlib import Path

from measure import compare, seconds

from toolbox.records.exports import secret_scan
from toolbox.records.exports.secret_scan import Scanner

_MIB = 1 << 20
_SECRETS = [f"s3cret/value number {index:02d}" for index in range(5)]
_LINES = (
    b"INFO worker 3: step 120 loss 0.123 tokens 4096 disk-usage 71% {}\n"
    b"task-1 GET https://host/path?x=1 200 in 0.3 s, key=value, token_count 17 []\n"
)
_MAX_RATIO = 90.0
_MAX_GROWTH = 3.0  # of the time for twice the size; 2 without noise


def _log(size: int) -> bytes:
    return (_LINES * (size // len(_LINES) + 1))[:size]


def _digest(file: Path) -> str:
    digest = hashlib.sha256()
    for block in secret_scan.blocks(file.parent, file.name):
        digest.update(block)
    return digest.hexdigest()


def _measure(folder: Path, kind: str, content: bytes) -> bool:
    file, half = folder / kind, folder / f"{kind}-half"
    file.write_bytes(content)
    half.write_bytes(content[: len(content) // 2])
    scanner = Scanner(_SECRETS)
    title = f"search {len(content) // _MIB} MiB of {kind} / sha256"
    within = compare(title, lambda: scanner.search(folder, kind), lambda: _digest(file), rounds=5, limit=_MAX_RATIO)
    whole = min(seconds(lambda: scanner.search(folder, kind)) for _ in range(3))
    part = min(seconds(lambda: scanner.search(folder, half.name)) for _ in range(3))
    print(f"  {len(content) / _MIB / whole:.0f} MB/s; twice the size takes {whole / part:.2f} times as long")
    return within and whole / part <= _MAX_GROWTH


def main() -> int:
    """Measure, and return 1 if a limit is exceeded."""
    with tempfile.TemporaryDirectory() as name:
        logs = _measure(Path(name), "logs", _log(32 * _MIB))
        binary = _measure(Path(name), "binary", os.urandom(32 * _MIB))
    return 0 if logs and binary else 1


if __name__ == "__main__":
    sys.exit(main())
