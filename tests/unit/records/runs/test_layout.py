"""Directories are numbered: each number is used once, also by concurrent processes and with odd names."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolbox.ground.kit import attempt_files
from toolbox.ground.kit.attempt_files import EXIT_CODE, LOCK, RESULTS, SOURCES, STARTED
from toolbox.ground.system import places
from toolbox.records.runs import layout
from toolbox.records.runs.layout import AttemptDirectory, RunDirectory, StepDirectory

HOSTILE = [
    "a/b",
    "../../up",
    "..",
    ".",
    "",
    "/",
    "\0",
    "\x1b[2J",
    "new\nline",
    "☃" * 200,
    "x" * 5000,
    "\udcff",
    "漢" * 200,
    "~",
]


def test_the_name_of_a_run_is_its_time_and_sorts_by_it() -> None:
    microseconds = (0, 9, 10, 35, 36, 46_656, 999_999)
    names = [layout.run_id(datetime(2026, 11, 21, 1, 13, 43, number, UTC)) for number in microseconds]
    assert (names[0], names[-1]) == ("20261121-011343-0000", "20261121-011343-lflr")
    assert names == sorted(set(names))


def test_directories_are_numbered_one_by_one(tmp_path: Path) -> None:
    names = [layout.next_directory(tmp_path, name).name for name in ("a", "b", "a")]
    assert names == ["000__a", "001__b", "002__a"]


def test_the_number_of_a_removed_directory_stays_reserved(tmp_path: Path) -> None:
    layout.next_directory(tmp_path, "a").rmdir()
    assert layout.next_directory(tmp_path, "b").name == "001__b"


def test_other_directories_do_not_change_the_numbers(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "007__by_hand").mkdir()
    assert layout.next_directory(tmp_path, "a").name == "000__a"


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_name_stays_inside_and_is_printable(tmp_path: Path, name: str) -> None:
    found = layout.next_directory(tmp_path / "run", name)
    assert found.parent.resolve() == (tmp_path / "run").resolve()
    assert re.fullmatch(r"000__[\w.,=@+~-]+", found.name)
    assert found.is_dir()


@pytest.mark.parametrize(("name", "safe"), [("model=small,batch=8", "model=small,batch=8"), ("a b", "a_b")])
def test_safe_name_keeps_allowed_characters(name: str, safe: str) -> None:
    assert layout.safe_name(name) == safe


def test_the_page_of_an_owner_has_the_name_of_the_owner() -> None:
    assert layout.owner_pages(["ada", "Team B", "ada"]) == {"ada": "ada.html", "Team B": "Team_B.html"}


@given(st.lists(st.one_of(st.text(), st.sampled_from(["a/b", "a_b", "A_B", "..", "x" * 300, "x" * 301]))))
def test_owners_never_share_a_page(owners: list[str]) -> None:
    pages = layout.owner_pages(owners)
    twice = layout.owner_pages([*owners, *(page.removesuffix(".html") for page in pages.values())])
    for each in (pages, twice):
        assert len({page.casefold() for page in each.values()}) == len(each)
        assert all(re.fullmatch(r"[\w.,=@+-]{1,200}", page) and page[0] != "." for page in each.values())
        assert all(len(page.encode()) <= 255 for page in each.values())


def test_steps_are_listed_by_number_and_nothing_else_is(tmp_path: Path) -> None:
    for name in ("1000__late", "200__early", ".numbers", "notes", "20__short"):
        (tmp_path / name).mkdir()
    assert [path.name for path in layout.steps(tmp_path)] == ["200__early", "1000__late"]


def test_the_number_after_999_has_four_digits(tmp_path: Path) -> None:
    for number in range(1000):
        (tmp_path / ".numbers" / f"{number:03d}").mkdir(parents=True)
    assert layout.next_directory(tmp_path, "x").name == "1000__x"


# Fifty threads take directories at the same time in the directory $ARTIFACT_DIR.
TAKE_FIFTY = """
import sys, threading
sys.path.insert(0, sys.argv[1])
from toolbox.orchestration import env
begin, faults = threading.Barrier(50), []
def take(name):
    begin.wait()
    try:
        with env.NextArtifactDir(name) as directory:
            assert env.ARTIFACT_DIR == directory, (env.ARTIFACT_DIR, directory)
            (directory / "name").write_text(name)
    except BaseException as error: faults.append(error)
threads = [threading.Thread(target=take, args=(f"{sys.argv[2]}-{number}",)) for number in range(50)]
for thread in threads: thread.start()
for thread in threads: thread.join()
sys.exit(repr(faults) if faults else 0)
"""


def test_200_threads_of_4_processes_take_200_successive_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARTIFACT_DIR", str(tmp_path))
    root = str(Path(__file__).parents[4])
    command = [sys.executable, "-c", TAKE_FIFTY, root]
    started = [subprocess.Popen([*command, f"p{number}"]) for number in range(4)]
    assert [process.wait(timeout=120) for process in started] == [0, 0, 0, 0]
    found = layout.steps(tmp_path)
    assert [int(path.name[:3]) for path in found] == list(range(200))
    names = {(path / "name").read_text() for path in found}
    assert names == {f"p{process}-{number}" for process in range(4) for number in range(50)}
    assert all(path.name[5:] == (path / "name").read_text() for path in found)


def test_numbers_in_the_journal_are_reserved(tmp_path: Path) -> None:
    layout.reserve(tmp_path, ["001__test", "001__test/004__a", "odd"])
    assert layout.next_directory(tmp_path, "next").name == "002__next"
    assert layout.next_directory(tmp_path / "001__test", "next", after=3).name == "005__next"


_NAMESAKES = {  # the summary of a cluster is in another directory
    ("features/kubernetes/library/cluster_state.py", "summary.json")
}
_WORDS = {
    RESULTS,
    SOURCES,
    EXIT_CODE,
    LOCK,
    STARTED,
    StepDirectory.state,
    AttemptDirectory.notebooks,
    RunDirectory.owners,
    "hosts",
}  # these words are names only in paths


def _literals(tree: ast.AST) -> Iterator[str]:
    """Yield all texts in a module that may be file names; placeholders of f-strings are `{}`."""
    parts = {id(node.right) for node in ast.walk(tree) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node.value not in _WORDS or id(node) in parts:
                yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)


def test_only_layout_contains_the_file_names_of_a_run() -> None:
    entries = [vars(kind) for kind in (RunDirectory, StepDirectory, AttemptDirectory)]
    names = {entry._name for found in entries for entry in found.values() if isinstance(entry, layout._Entry)}
    assert {"journal.jsonl", "step.json", "stdout.log", "files", ".targets"} <= names
    names |= {"{}.log", "attempt-{}", "hosts"}
    root = places.PACKAGE
    found = [
        (str(file.relative_to(root)), name)
        for file in root.rglob("*.py")
        if file not in {Path(layout.__file__), Path(attempt_files.__file__)}
        for name in _literals(ast.parse(file.read_text(encoding="utf-8")))
        if name in names
    ]
    assert set(found) == {entry for entry in _NAMESAKES if (root / entry[0]).exists()}
