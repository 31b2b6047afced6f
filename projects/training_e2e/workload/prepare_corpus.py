"""
Write the text that the training workload learns: the help topics of Python's own manual.

    python prepare_corpus.py --output corpus.txt --characters 200000

It is real text that every machine with Python already has: nothing is downloaded. Prints one JSON object
about the corpus. Where Python holds less text than was asked for, the corpus is all of it, and `characters`
says so.

It stands alone, without the files beside it, so that a host can be given it on stdin.
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

FEWEST = 1000  # characters; less is no text to learn from


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status."""
    parser = argparse.ArgumentParser(description="Write the text that the training workload learns.")
    parser.add_argument("--output", type=Path, required=True, help="file to write")
    parser.add_argument("--characters", type=int, required=True, help=f"length of the text, from {FEWEST} on")
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
    """All help topics, in the order of their names."""
    return "\n".join(topics[name] for name in sorted(topics))


def describe(text: str) -> dict[str, int | str]:
    """What identifies a corpus: two versions of Python do not hold the same text."""
    return {
        "characters": len(text),
        "distinct_characters": len(set(text)),
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
    }


def write_if_different(path: Path, content: bytes) -> bool:
    """Have `content` in the file, which is replaced whole; whether it was not there already."""
    if path.is_file() and path.read_bytes() == content:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(path)
    return True


if __name__ == "__main__":
    sys.exit(main())
