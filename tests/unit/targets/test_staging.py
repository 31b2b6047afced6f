"""The files and the order of a workload are prepared for a host, and unwanted files of an attempt are removed."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.ledger import MemoryLedger
from toolbox.ground.model.errors import StepError
from toolbox.ground.model.secrets import Secret
from toolbox.ground.model.verdicts import Cause
from toolbox.ground.model.workloads import TargetContext, Timeouts, Workload
from toolbox.ground.system import redaction
from toolbox.ground.system.redaction import Redactor
from toolbox.targets import staging

CONTEXT = TargetContext("there", "run", Path("/mark"), {}, lambda: ["secret"], lambda _: None, MemoryLedger())


def names(directory: Path) -> list[str]:
    """Return the sorted names of all files and folders below a directory."""
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def test_an_order_contains_all_settings_of_the_workload() -> None:
    workload = Workload(
        ("a", "b"), env={"A": "1", "B": Secret("secret")}, timeouts=Timeouts(1, 2, 3, 4), log_bytes=5, sample_seconds=6
    )
    assert staging.order(workload, CONTEXT, {"A": "0", "C": "2"}) == {
        "command": ["a", "b"],
        "env": {"A": "1", "B": "secret", "C": "2"},
        "cwd": None,
        "secrets": ["secret"],
        "run_seconds": 2,
        "silence_seconds": 3,
        "grace_seconds": 4,
        "log_bytes": 5,
        "sample_seconds": 6,
    }


def test_generated_files_that_are_not_as_they_were_sent_are_named(tmp_path: Path) -> None:
    texts = dict.fromkeys(("same", "longer", "other", "gone", "folder", "link", "sub/deep"), "text")
    source = tmp_path / "data"
    source.write_text("data")
    workload = Workload(("true",), text_files={**texts, "./e\N{COMBINING ACUTE ACCENT}": "\udcff"}, files={"x": source})
    with staging.staged(workload, tmp_path) as folder:
        assert folder is not None
        src = folder.rename(tmp_path / "src")
        assert staging.changed_files(workload, tmp_path) == frozenset()
        for name, text in {"longer": "text and more", "other": "TEXT", "sub/deep": "", "x": "not generated"}.items():
            (src / name).write_text(text)
        for name in ("gone", "folder", "link"):
            (src / name).unlink()
        (src / "folder").mkdir()
        (src / "link").symlink_to("link")
    changed = {f"src/{name}" for name in ("longer", "other", "gone", "folder", "link", "sub/deep")}
    assert staging.changed_files(workload, tmp_path) == changed


def test_a_file_in_which_a_secret_was_masked_is_as_it_was_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    redactor = Redactor()
    redactor.add(["one-secret"])
    monkeypatch.setattr(redaction, "current", lambda: redactor)
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a").write_text("the one-secret, and more")
    workload = Workload(("true",), text_files={"a": "the one-secret, and more"})
    assert staging.changed_files(workload, tmp_path) == frozenset()
    redactor.sweep(tmp_path)
    assert (tmp_path / "src/a").read_text() == "the ***, and more"
    assert staging.changed_files(workload, tmp_path) == frozenset()


@pytest.mark.parametrize(
    ("env", "inherited", "expected"),
    [
        ({}, [], []),
        ({"A": "1"}, [], []),
        ({"A": Secret("one-secret")}, [], ["one-secret"]),
        ({"A": Secret("Bearer one-secret")}, [], ["Bearer one-secret", "one-secret"]),
        ({"A": "Bearer one-secret"}, [], ["one-secret"]),
        ({}, ["two-secret", "x"], ["two-secret"]),
    ],
)
def test_an_order_contains_only_the_secrets_of_its_workload(
    env: dict[str, str | Secret], inherited: list[str], expected: list[str]
) -> None:
    context = replace(CONTEXT, secrets=lambda: ["one-secret", "two-secret"])
    assert staging.order(Workload(("true",), env=env), context, {}, inherited)["secrets"] == expected


def test_sent_files_are_in_a_separate_folder_until_they_are_moved(tmp_path: Path) -> None:
    (tmp_path / "source").write_text("1")
    workload = Workload(("true",), files={"a/b": tmp_path / "source"}, text_files={"a/c": "2"})
    attempt = tmp_path / "attempt"
    with staging.staged(workload, attempt) as first, staging.staged(workload, attempt) as second:
        assert first is not None
        assert second is not None
        assert names(first) == names(second) == ["a", "a/b", "a/c"]
        first.replace(attempt / "src")
    assert names(attempt) == ["src", "src/a", "src/a/b", "src/a/c"]


def test_a_workload_without_files_has_no_folder(tmp_path: Path) -> None:
    with staging.staged(Workload(("true",)), tmp_path) as folder:
        assert folder is None
    assert names(tmp_path) == []


def test_a_folder_is_sent_without_bytecode_and_git_files(tmp_path: Path) -> None:
    for name in ("code/a.py", "code/a.pyc", "code/__pycache__/a.pyc", "code/.git/HEAD", "code/sub/b"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "code/link").symlink_to("a.py")
    with staging.staged(Workload(("true",), files={"x": tmp_path / "code"}), tmp_path / "attempt") as folder:
        assert folder is not None
        assert names(folder) == ["x", "x/a.py", "x/link", "x/sub", "x/sub/b"]
        assert (folder / "x/link").is_symlink()


def test_a_missing_file_is_a_configuration_error(tmp_path: Path) -> None:
    workload = Workload(("true",), files={"a": tmp_path / "nowhere"})
    with pytest.raises(StepError, match="nowhere") as caught, staging.staged(workload, tmp_path / "attempt"):
        pass
    assert caught.value.cause is Cause.CONFIGURATION
    assert names(tmp_path / "attempt") == []


def test_a_file_in_the_place_of_a_folder_is_an_infrastructure_error(tmp_path: Path) -> None:
    (tmp_path / "source").touch()
    files = {"a/b": tmp_path / "source", "a": tmp_path / "source"}
    workload = Workload(("true",), files=files, text_files={"a/b/c": ""})
    with pytest.raises(StepError, match="cannot be sent") as caught, staging.staged(workload, tmp_path / "attempt"):
        pass
    assert caught.value.cause is Cause.INFRASTRUCTURE


@pytest.mark.parametrize(
    ("patterns", "left"),
    [
        (("**",), ["a.json", "d", "d/b.json", "d/e", "d/e/c.txt", "empty", "link"]),
        (("*.json",), ["a.json"]),
        (("**/*.json", "link"), ["a.json", "d", "d/b.json", "link"]),
        (("d",), ["d", "d/b.json", "d/e", "d/e/c.txt"]),
        ((), []),
    ],
)
def test_files_that_match_no_pattern_are_removed(tmp_path: Path, patterns: tuple[str, ...], left: list[str]) -> None:
    (tmp_path / "d/e").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("d")
    for name in ("a.json", "d/b.json", "d/e/c.txt"):
        (tmp_path / name).touch()
    staging.remove_unmatched(tmp_path, patterns)
    assert names(tmp_path) == left


def test_a_missing_directory_has_no_files_to_remove(tmp_path: Path) -> None:
    staging.remove_unmatched(tmp_path / "nowhere", ("*.json",))
    assert names(tmp_path) == []


def test_pipes_and_links_in_place_of_files_are_removed(tmp_path: Path) -> None:
    attempt = tmp_path / "attempt"
    (attempt / "files").mkdir(parents=True)
    (attempt / "files/a").touch()
    (attempt / "files/link").symlink_to("a")
    os.mkfifo(attempt / "files/pipe")
    os.mkfifo(attempt / "stdout.log")
    (attempt / "outcome.json").symlink_to(tmp_path)
    staging.discard_special_files(attempt)
    assert sorted(path.name for path in attempt.rglob("*")) == ["a", "files", "link"]


# The digests of files


def tree(directory: Path) -> Path:
    """Create a folder with a script, a data file in a subfolder, and a link, and return its path."""
    folder = directory / "tree"
    (folder / "data").mkdir(parents=True)
    (folder / "run.sh").write_text("true")
    (folder / "data/a.json").write_text("{}")
    (folder / "latest").symlink_to("data")
    return folder


def test_each_file_of_a_folder_has_a_digest(tmp_path: Path) -> None:
    found = staging.digests(tree(tmp_path))
    assert list(found) == ["latest", "run.sh", "data/a.json"]
    assert found["latest"] == "-> data"


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "run.sh").write_text("false"),
        lambda folder: (folder / "run.sh").chmod(0o755),
        lambda folder: (folder / "data/a.json").rename(folder / "data/b.json"),
        lambda folder: [(folder / "latest").unlink(), (folder / "latest").symlink_to("run.sh")],
        lambda folder: (folder / "data/new").touch(),
    ],
)
def test_each_change_of_a_sent_file_changes_a_digest(tmp_path: Path, change: Callable[[Path], object]) -> None:
    folder = tree(tmp_path)
    before = staging.digests(folder)
    change(folder)
    assert staging.digests(folder) != before


def test_ignored_files_have_no_digest(tmp_path: Path) -> None:
    folder = tree(tmp_path)
    before = staging.digests(folder)
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__/a.pyc").touch()
    os.utime(folder / "run.sh", (1, 1))
    assert staging.digests(folder) == before


def test_a_file_that_is_a_link_has_the_digest_of_its_target(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("x")
    (tmp_path / "link").symlink_to("real")
    assert staging.digests(tmp_path / "link") == staging.digests(tmp_path / "real")


def make_special(file: Path, kind: str) -> None:
    """Make a special file, or a link to one."""
    if kind == "a named pipe":
        os.mkfifo(file)
    elif kind == "a socket":
        with socket.socket(socket.AF_UNIX) as unused:
            unused.bind(str(file))
    else:
        file.symlink_to("/dev/zero")


@pytest.mark.parametrize(
    ("kind", "in_folder"),
    [("a named pipe", False), ("a named pipe", True), ("a socket", False), ("a socket", True), ("a device", False)],
)
def test_a_special_file_is_refused_and_not_read(tmp_path: Path, kind: str, in_folder: bool) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    make_special(folder / "x", kind)
    source = folder if in_folder else folder / "x"
    with pytest.raises(staging.SpecialFile, match=rf"/x cannot be sent: it is {kind}, and not a file"):
        staging.digests(source)
    workload, attempt = Workload(("true",), files={"sent": source}), tmp_path / "attempt"
    message = rf"/x cannot be sent: it is {kind}, and not.* folder; remove it, or name the files"
    with pytest.raises(StepError, match=message) as caught, staging.staged(workload, attempt):
        pass
    assert caught.value.cause is Cause.CONFIGURATION
