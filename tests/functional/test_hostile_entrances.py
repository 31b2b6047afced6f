"""Two hundred hostile texts at every input: none is executed, escapes from its directory, or is printed raw."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import tarfile
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.functional.test_hostile_text import FILES, flow
from tests.hostile_texts import texts
from toolbox.ground.model.addresses import Address
from toolbox.ground.model.workloads import CollectLimits
from toolbox.records.runs import run_reader
from toolbox.reports.forge import github
from toolbox.targets import archives
from toolbox.testing import Outcome, Workspace

# Characters that control a terminal or change the direction of text. Line feed and tab are harmless.
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
WORKFLOW_COMMAND = re.compile(r"^\s*(::[a-z-]|##\[|##vso\[)", re.MULTILINE)
IN_ACTIONS = {"GITHUB_ACTIONS": "true"}
ORCHESTRATION = '''
    """Runs a matrix."""
    from toolbox.orchestration import matrix


    def test():
        matrix.run()
'''
# Uses the text as a word of a shell command, as a variable, as output and as a file name, and then fails.
COMMAND = """
    printf %s {@cell.x} >word; printf %s "$TEXT" >variable; printf '%s\\n' "$TEXT"
    name=$(printf %s "$TEXT" | head -c 200 | tr / _); [ -z "$name" ] || : 2>/dev/null >"name-$name"
    exit 1
"""


class Watched:
    """A workspace in a folder without other files, in which every file that an attack creates is found."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workspace = Workspace(folder / "workspace")
        self.texts = texts(folder)

    def run(self, *argv: str) -> Outcome:
        """Run a command line, and check that no text was executed and that nothing hostile was printed."""
        outcome = self.workspace.run(*argv, env=IN_ACTIONS, timeout=300)
        self.check()
        printed = outcome.stdout + outcome.stderr
        assert RAW.search(printed) is None, repr(RAW.search(printed))
        assert WORKFLOW_COMMAND.search(printed) is None
        assert "Traceback" not in printed
        return outcome

    def check(self) -> None:
        """Check that no text was executed, and that none became a path outside of the workspace."""
        made = [path for path in self.folder.rglob("pwned*") if not path.name.startswith("name-")]
        assert made == []
        assert [path.name for path in self.folder.iterdir()] == ["workspace"]
        assert not [name for name in os.listdir("/tmp") if name.startswith("pwned-")]  # noqa: PTH208


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    found = Watched(tmp_path / "all")
    yield found
    found.check()


def values(given: list[str]) -> list[str]:
    """Return the texts that a configuration does not read as references."""
    return [text for text in given if not text.startswith(("@", "*$@")) and "{@" not in text]


def test_hostile_arguments_of_a_role_arrive_unchanged(watched: Watched) -> None:
    watched.workspace.write(FILES)
    some = [text for text in watched.texts if len(text) < 10_000]
    outcome = watched.run("machine", "write", f"--text={some[0]}", f"--texts={flow(some)}")
    assert outcome.exit_code == 0, str(outcome)
    (file,) = watched.workspace.artifacts.glob("toolbox/*/artifacts/given.json")
    assert json.loads(file.read_text()) == [some[0], some, None]


def test_hostile_values_pass_a_template_unchanged(watched: Watched) -> None:
    some = values(watched.texts)
    config = {"text": some[0], "texts": some}
    watched.workspace.write({**FILES, "config/hostile.yaml": json.dumps(config)})
    outcome = watched.run("project", "run", "hostile")
    assert outcome.exit_code == 0, str(outcome)
    (file,) = watched.workspace.artifacts.glob("hostile/*/*__test/*__machine__write/artifacts/given.json")
    assert json.loads(file.read_text())[1] == some


def test_hostile_names_of_hosts_are_refused(watched: Watched) -> None:
    accepted = []
    for text in watched.texts:
        with suppress(ValueError):
            accepted.append(Address.parse(text).host)
    plain = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
    assert [host for host in accepted if not plain.fullmatch(host) or ".." in host] == []


class Page(HTMLParser):
    """A parser that collects the parts of a page that a browser would execute."""

    def __init__(self) -> None:
        super().__init__()
        self.active: list[str] = []
        self._is_script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._is_script = tag == "script"
        for name, value in attrs:
            is_icon = tag == "link" and (value or "").startswith("data:image/svg+xml,")  # of Topgallant
            if name.startswith("on") or (
                re.match(r"\s*(javascript|data):", value or "", re.IGNORECASE) and not is_icon
            ):
                self.active.append(f"{tag} {name}={value}")

    def handle_endtag(self, tag: str) -> None:
        self._is_script = self._is_script and tag != "script"

    def handle_data(self, data: str) -> None:
        if self._is_script and re.match(r"\s*alert\(1\)", data):
            self.active.append(data)


def test_hostile_cells_run_and_are_reported_as_text(watched: Watched) -> None:
    some = values(watched.texts)
    config: dict[str, Any] = {
        "matrix": {
            "axes": {"x": some},
            "jobs": 4,
            "retries": {"infrastructure": 0},
            "workload": {"command": COMMAND, "env": {"TEXT": "{@cell.x}"}, "sample_seconds": None},
        }
    }
    project = {"projects/hostile/orchestration.py": ORCHESTRATION}
    watched.workspace.write({**project, "config/hostile.yaml": json.dumps(config)})
    outcome = watched.run("project", "run", "hostile")
    assert outcome.exit_code == 1, str(outcome)
    directory = watched.workspace.run_directory()
    cells = {step["step"]: step for step in watched.workspace.summary()["steps"] if step["kind"] == "cell"}
    assert len(cells) == len(some)
    arrived = []
    for step in cells:
        files = directory / step / "attempt-1" / "files"
        arrived.append((files / "word").read_bytes().decode())
        assert (files / "variable").read_bytes().decode() == arrived[-1]
    assert sorted(arrived) == sorted(some)
    check_reports(directory)
    watched.run("project", "status", str(directory))
    watched.run("results", "show", "latest")


def check_reports(directory: Path) -> None:
    """Check that the reports of a run contain nothing that a browser or a terminal would execute."""
    page = Page()
    page.feed((directory / "report.html").read_text())
    assert page.active == []
    junit = (directory / "junit.xml").read_text()
    ET.fromstring(junit)  # this fails if the report is not well-formed
    assert RAW.search(junit) is None
    comment = github.comment(run_reader.read(directory))
    assert RAW.search(comment) is None
    assert re.search(r"<(script|img|svg|a href=\"javascript)", comment) is None


def test_hostile_members_of_an_archive_stay_in_the_directory(watched: Watched) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for number, text in enumerate(watched.texts):
            for kind, name in ((tarfile.REGTYPE, text), (tarfile.REGTYPE, f"files/{text}"), (tarfile.SYMTYPE, "")):
                member = tarfile.TarInfo(name or f"files/link-{number}")
                member.type, member.linkname = kind, text if kind == tarfile.SYMTYPE else ""
                archive.addfile(member, io.BytesIO() if kind == tarfile.REGTYPE else None)
    stream.seek(0)
    there = watched.workspace.directory / "attempt"
    archives.extract(stream, there, CollectLimits())
    inside = [path for path in watched.folder.rglob("*") if path.is_symlink()]
    assert [path for path in inside if not path.resolve().is_relative_to(there)] == []
    assert {path.name for path in there.iterdir()} <= {"files", "exit_code"}
    shutil.rmtree(there)  # its files have names like those that an executed text would create
