"""
Write the training text of the workload: the help topics of Python's manual.

    python prepare_corpus.py --output corpus.txt --characters 200000

Every machine with Python has this text, so nothing is downloaded. The script prints a JSON object that describes
the corpus. If the manual is shorter than requested, the corpus is the whole manual, and `characters` is its length.

The script needs no other files of its folder, so that a host can run it from stdin.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from pydoc_data.topics import topics

FEWEST = 1000  # characters; a shorter text is useless for training


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit status."""
    parser = argparse.ArgumentParser(description="Write the text that the training workload learns.")
    parser.add_argument("--output", type=Path, required=True, help="file to write")
    parser.add_argument("--characters", type=int, required=True, help=f"length of the text, {FEWEST} or more")
    options = parser.parse_args(arguments)
    if options.characters < FEWEST:
        fault = f"--characters must be {FEWEST} or more, not {options.characters}"
        print(f"prepare_corpus.py: {fault}", file=sys.stderr)
        return 2
    text = manual()[: options.characters]
    changed = write_if_different(options.output, text.encode())
    print(json.dumps(describe(text) | {"requested": options.characters, "changed": changed}))
    return 0


def manual() -> str:
    """Return all help topics, sorted by name."""
    return "\n".join(topics[name] for name in sorted(topics))


def describe(text: str) -> dict[str, int | str]:
    """Return the properties that identify a corpus, because the text differs between versions of Python."""
    return {
        "characters": len(text),
        "distinct_characters": len(set(text)),
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
    }


def write_if_different(path: Path, content: bytes) -> bool:
    """Replace a file atomically unless it already contains `content`, and return whether it was replaced."""
    if path.is_file() and path.read_bytes() == content:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(path)
    return True


if __name__ == "__main__":
    sys.exit(main())
