"""Changes the files of a run directory as damage or an attacker might, and reads the run with all commands.

Each change is made from a seed, so that a failure can be repeated:

    python -m tests.hostile_run_directories RUN FOLDER FIRST LAST

changes RUN with each seed, calls the commands in this process, and prints one line of JSON: the number of calls with
each exit code, and the calls that ended with an internal error. The process is one that a test can kill.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import resource
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from toolbox.cli import main as cli
from toolbox.ground.interface import registry

# Names of a run directory; `*` stands for the directory of a step or an attempt.
TARGETS: Final = (
    *("journal.jsonl",) * 4,
    *("run.json", "plan.json") * 2,
    *("ledger.jsonl", "summary.json", "presets_applied", "config.yaml", "since_last_run.json"),
    *("**/settings.yaml", "**/outcome.json", "**/step.json", "**/exit_code", "**/stdout.log", "**/files/*.xml"),
)
VALUES: Final[tuple[Any, ...]] = (
    *(0, 1, -1, 2, 10**30, 10**400, 1e308, -1e308, 0.5, float("nan"), float("inf"), True, False, None),
    *("", "x", "x" * 300, "y" * 5000, "a\0b", "\ud800", "../../escape", "/etc/passwd", "a/b", ".", "~", "\x1b[2J"),
    *([], {}, [[]], {"": None}, [None], ["x"], {"x": "y"}, "*$@x", "@x", "{{ x }}", "1:30", "2026-99-99", "a\nb"),
    *("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "000__x", "9" * 100 + "__x", "000__test/\ud800"),
)
_MAX_MEMORY: Final = 8 << 30  # bytes: a command must not read /dev/zero until the machine has no memory left
_JSON: Final = ("run.json", "plan.json", "summary.json", "outcome.json", "step.json", "since_last_run.json")


def change(directory: Path, seed: int) -> str:
    """Change one to three files of a run, and return what was changed."""
    chooser = random.Random(seed)
    return "; ".join(_change(directory, chooser) for _ in range(chooser.choice([1, 1, 1, 2, 3])))


def _change(directory: Path, chooser: random.Random) -> str:
    target = chooser.choice(TARGETS)
    files = sorted(file for file in directory.glob(target) if file.is_file() and not file.is_symlink())
    if not files:
        return f"{target}: no such file"
    file = chooser.choice(files)
    action = chooser.choice([_change_values, _change_values, _change_values, _change_lines, _change_bytes, _replace])
    return f"{file.relative_to(directory)}: {action(file, chooser)}"


def _change_values(file: Path, chooser: random.Random) -> str:
    """Replace a value somewhere in a document, or in a line of a file with one document per line."""
    text = file.read_text(errors="replace")
    if file.suffix == ".jsonl":
        lines = text.splitlines()
        number = chooser.randrange(len(lines)) if lines else 0
        lines[number : number + 1] = [_changed(lines[number] if lines else "{}", json.loads, json.dumps, chooser)]
        file.write_text("\n".join(lines) + "\n")
        return f"line {number + 1} is {lines[number][:300]}"
    if file.name in _JSON:
        text = _changed(text, json.loads, json.dumps, chooser)
    elif file.suffix == ".yaml":
        text = _changed(text, yaml.safe_load, json.dumps, chooser)
    else:
        text = json.dumps(chooser.choice(VALUES))
    file.write_text(text)
    return f"is {text[:300]}"


def _changed(text: str, load: Callable[[str], Any], dump: Callable[[Any], str], chooser: random.Random) -> str:
    try:
        document = load(text)
    except (ValueError, yaml.YAMLError):
        document = {}
    places: list[tuple[Any, Any]] = []
    _collect(document, places)
    value = chooser.choice(VALUES)
    if not places or chooser.random() < 0.03:
        return dump(value)
    container, key = chooser.choice(places)
    match chooser.randrange(8):
        case 0 if isinstance(container, dict):
            del container[key]
        case 1 if isinstance(container, dict) and isinstance(value, str):
            container[value] = container.pop(key)
        case 2:
            container[key] = {"x": container[key]}
        case 3:
            container[key] = [container[key]]
        case _:
            container[key] = value
    return dump(document)


def _collect(value: Any, places: list[tuple[Any, Any]]) -> None:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        places.append((value, key))
        _collect(item, places)


def _change_lines(file: Path, chooser: random.Random) -> str:
    """Delete, repeat or swap lines."""
    lines = file.read_bytes().splitlines(keepends=True) or [b"\n"]
    one, other = chooser.randrange(len(lines)), chooser.randrange(len(lines))
    match chooser.randrange(3):
        case 0:
            del lines[one]
        case 1:
            lines.insert(other, lines[one])
        case _:
            lines[one], lines[other] = lines[other], lines[one]
    file.write_bytes(b"".join(lines))
    return f"line {one + 1} was deleted, repeated or swapped with line {other + 1}"


def _change_bytes(file: Path, chooser: random.Random) -> str:
    """Cut the file off, overwrite bytes, or insert some."""
    content = bytearray(file.read_bytes())
    place = chooser.randrange(len(content) + 1)
    piece = chooser.choice([b"\0", b"\xff\xfe", b"[" * 20_000, b"\n", b'"', b"&a [*a]", b"- " * 2000, b"\xed\xa0\x80"])
    match chooser.randrange(3):
        case 0:
            del content[place:]
        case 1:
            content[place : place + len(piece)] = piece
        case _:
            content[place:place] = piece
    file.write_bytes(bytes(content))
    return f"{piece[:10]!r} at byte {place}"


def _replace(file: Path, chooser: random.Random) -> str:
    """Put something else in the place of a file."""
    kind = chooser.choice(["nothing", "empty", "directory", "loop", "pipe", "link"])
    file.unlink()
    match kind:
        case "empty":
            file.touch()
        case "directory":
            file.mkdir()
        case "loop":
            file.symlink_to(file.name)
        case "pipe":
            os.mkfifo(file)
        case "link":
            file.symlink_to("/dev/zero" if chooser.random() < 0.5 else "/etc/hostname")
    return f"is replaced by {kind}"


def copied(directory: Path, target: Path) -> Path:
    """Return a fresh copy of a run, which replaces an earlier one."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(directory, target)
    return target


def commands(run: Path, folder: Path) -> Iterator[list[str]]:
    """Yield the command lines that read a run. The last one may execute cells of the run again."""
    yield ["project", "status", str(run)]
    yield ["project", "status", str(run), "--format=json"]
    yield ["project", "logs", str(run)]
    yield ["results", "report", str(run)]
    for kind in ("github", "comment", "annotations"):
        yield ["results", "report", str(run), f"--kind={kind}"]
    yield ["results", "merge", str(run), f"--artifact_dir={folder / 'merged'}"]
    yield ["results", "import", str(run), f"--database={folder / 'results.sqlite'}"]
    yield ["results", "show", f"--database={folder / 'results.sqlite'}"]
    if "ci" in registry.group_files():  # a feature, which may be left out
        yield ["ci", "export", str(folder / "exports"), f"--run_dir={run}"]
    yield ["project", "resume", str(run)]


def call(argv: list[str]) -> tuple[int, str]:
    """Call a command line, and return its exit code and what it printed on stderr."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main([*argv, "--debug"])
    err.flush()
    return code, err.buffer.getvalue().decode(errors="replace")


def main(source: Path, folder: Path, first: int, last: int) -> None:
    """Change a run with each seed from `first` up to `last`, and read it with a third of the commands."""
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY, _MAX_MEMORY))
    codes, faults = Counter[int](), []
    for seed in range(first, last):
        run = copied(source, folder / source.parent.name / source.name)
        changed = change(run, seed)
        for number, argv in enumerate(commands(run, folder)):
            if (seed + number) % 3 == 0:
                code, text = call(argv)
                codes[code] += 1
                if "internal error" in text or ("Traceback" in text and "\nerror: " not in text):
                    faults.append(f"seed {seed}: {changed}\n{' '.join(argv)}\n{text}")
    sys.stdout.write(json.dumps({"codes": codes, "faults": faults}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
