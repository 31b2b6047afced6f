"""Derives from a recorded run what a disk may hold if the power is cut after a system call.

A file has the content of its last sync, the content that was written since, or a part of that. A file name exists for
certain once its directory was synced. Before the sync it may or may not exist.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.fakes.disk_recorder import Node

Tree = Mapping[str, bytes | None]  # None is a directory
JOURNALS: Final = ("journal.jsonl", "ledger.jsonl")
DERIVED: Final = ("step.json", "presets_applied", "FAILURE", "settings.yaml", "summary.json")


@dataclass(frozen=True, slots=True)
class State:
    """A possible content of a disk after a power cut.

    Args:
        tree: files and directories by their paths.
        outside: effects of the workloads outside the run directory, which no power cut undoes.
        call: last system call before the power cut.
        kind: way in which the power cut was simulated.
    """

    tree: Tree
    outside: bytes
    call: str
    kind: str

    @property
    def key(self) -> tuple[object, ...]:
        """Key that equal states share: the files that a resumed run reads, with only the whole lines of journals."""
        read = {path: content for path, content in self.tree.items() if not _is_derived(Path(path))}
        whole = {
            path: b"\n".join(line for line in content.split(b"\n")[:-1] if b"\0" not in line)
            for path, content in read.items()
            if content is not None and path.endswith(JOURNALS)
        }
        return (tuple(sorted((read | whole).items(), key=lambda item: item[0])), self.outside)

    def write(self, root: Path) -> None:
        """Write the files and directories below `root`."""
        for path, content in sorted(self.tree.items()):
            if content is None:
                (root / path).mkdir(parents=True, exist_ok=True)
            else:
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_bytes(content)


@dataclass(slots=True)
class _Disk:
    """What was synced so far, by file numbers. Inode numbers would not do, because the system reuses them.

    Args:
        contents: contents of files at their last sync.
        names: names in directories, with the numbers of the files, at the last sync of the directory.
    """

    numbers: dict[int, int] = field(default_factory=dict)
    contents: dict[int, bytes] = field(default_factory=dict)
    names: dict[int, dict[str, int]] = field(default_factory=dict)
    is_folder: dict[int, bool] = field(default_factory=dict)
    given: int = 0

    def take(self, synced: int, tree: Mapping[str, Node]) -> dict[str, int]:
        """Update the disk with the files after a system call, and return the file numbers by path."""
        inodes = {inode for inode, _ in tree.values()}
        self.numbers = {inode: number for inode, number in self.numbers.items() if inode in inodes}
        for inode, content in tree.values():
            if inode not in self.numbers:
                self.given += 1
                self.numbers[inode] = self.given
                self.is_folder[self.given] = content is None
        now = {path: self.numbers[inode] for path, (inode, _) in tree.items()}
        for path, (inode, content) in tree.items():
            if inode == synced and content is not None:
                self.contents[now[path]] = content
            elif inode == synced:
                inside = [other for other in now if other and Path(other).parent == Path(path)]
                self.names[now[path]] = {Path(other).name: now[other] for other in inside}
        return now

    def durable(self, number: int, path: str = "") -> Iterator[tuple[str, int]]:
        """Yield the paths that a power cut cannot remove, with their file numbers."""
        for name, child in self.names.get(number, {}).items():
            inner = f"{path}/{name}" if path else name
            yield inner, child
            yield from self.durable(child, inner)


def states(log: Path) -> Iterator[State]:
    """Yield the possible states of the disk after each recorded call. Equal states are yielded several times."""
    disk = _Disk()
    with log.open("rb") as stream:
        while stream.peek():
            call, synced, tree, outside = pickle.load(stream)  # the log was written by processes of this test
            now = disk.take(synced, tree)
            latest = {now[path]: content for path, (_, content) in tree.items()}
            there = {path: number for path, number in now.items() if path}
            for_good = dict(disk.durable(now[""]))
            yield State(_tree(disk, there, latest), outside, call, "a kill: all is there")
            yield State(_tree(disk, there, disk.contents), outside, call, "names are there, contents are not")
            yield State(
                _tree(disk, for_good, latest | disk.contents), outside, call, "neither names nor contents are there"
            )
            yield State(
                _tree(disk, for_good, disk.contents | latest), outside, call, "contents are there, names are not"
            )
            for kind, tail in (("torn", 2), ("zeros", 0)):
                torn = dict(_tree(disk, there, latest))
                for path in [path for path in there if path.endswith(JOURNALS)]:
                    torn[path] = _torn(disk.contents.get(there[path], b""), torn[path] or b"", tail)
                yield State(torn, outside, call, f"the end of the journal is {kind}")


def _tree(disk: _Disk, paths: Mapping[str, int], contents: Mapping[int, bytes | None]) -> Tree:
    return {path: None if disk.is_folder[number] else contents.get(number) or b"" for path, number in paths.items()}


def _is_derived(path: Path) -> bool:
    """Return whether no resumed run reads a file: people read it, or it still has a temporary name."""
    return path.name in DERIVED or path.name.startswith(".")


def _torn(synced: bytes, written: bytes, part: int) -> bytes:
    """Return a journal with a `part`-th of its unsynced end, or with zeros in place of that end if `part` is 0."""
    unsynced = written[len(synced) :]
    return synced + (unsynced[: len(unsynced) // part] if part else bytes(len(unsynced)))
