"""
Write the training text of the workload: the help topics of Python's manual.

    python prepare_corpus.py --output corpus.txt --characters 200000
    python prepare_corpus.py --output ~/training/corpus.txt --characters 200000 --own_directory

Every machine with Python has this text, so nothing is downloaded. The script prints a JSON object that describes
the corpus. If the manual is shorter than requested, the corpus is the whole manual, and `characters` is its length.

With `--own_directory`, the script creates the directory of the corpus and marks it as the workload's own, so that
`training cleanup` may delete it. A directory with other files is refused.

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
MARK = ".topgallant-training"
MARK_TEXT = b"Made by `topgallant training prepare_corpus`; `training cleanup` deletes this directory.\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit status."""
    parser = argparse.ArgumentParser(description="Write the text that the training workload learns.")
    parser.add_argument("--output", type=Path, required=True, help="file to write")
    parser.add_argument("--characters", type=int, required=True, help=f"length of the text, {FEWEST} or more")
    parser.add_argument("--own_directory", action="store_true", help="mark the directory as the workload's own")
    options = parser.parse_args(arguments)
    output = Path(os.path.expandvars(options.output)).expanduser()
    if options.characters < FEWEST:
        fault = f"--characters must be {FEWEST} or more, not {options.characters}"
        print(f"prepare_corpus.py: {fault}", file=sys.stderr)
        return 2
    text = manual()[: options.characters]
    try:
        if options.own_directory and is_foreign(output.parent):
            fault = "is not empty and was not made by `training prepare_corpus`: name another directory."
            print(f"{output.parent} {fault}", file=sys.stderr)
            return 1
        changed = options.own_directory and mark(output.parent)
        changed |= write_if_different(output, text.encode())
    except OSError as error:
        print(f"{output} cannot be written: {error}", file=sys.stderr)
        return 1
    print(json.dumps(describe(text) | {"requested": options.characters, "changed": changed}))
    return 0


def is_foreign(directory: Path) -> bool:
    """Return whether a directory contains files, but not the mark. It must not be marked: marked ones are deleted."""
    names = {path.name for path in directory.iterdir()} if directory.exists() else set()
    return bool(names) and MARK not in names


def mark(directory: Path) -> bool:
    """Create a directory, mark it as the workload's own, and return whether the mark is new."""
    is_new = write_if_different(directory / MARK, MARK_TEXT)
    (directory / MARK).chmod(0o644)
    directory.chmod(0o755)
    return is_new


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
