"""Exports by the command line: a secret stops them, a killed one is completed, and `results import` reads them back."""

from __future__ import annotations

import hashlib
import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.servers import s3
from tests.servers.storages import _s3_server as _s3_server  # noqa: PLC0414  # re-exports the fixture
from tests.servers.storages import s3_server as s3_server  # noqa: PLC0414  # re-exports the fixture
from toolbox.records.exports import manifest
from toolbox.records.exports.manifest import ExportedFile, FileList
from toolbox.testing import Workspace

TOKEN = "ghp_" + 36 * "a"
SECRET = "correct-horse-battery"


@pytest.fixture
def ran(small: Workspace) -> Workspace:
    """Return a team's repository with a finished run of twenty files besides its records."""
    assert small.run("project", "run", "small").exit_code == 0
    for number in range(20):
        (small.run_directory() / f"{number}.txt").write_text(f"text {number}")
    return small


def list_again(run: Path, name: str) -> None:
    """Write the size and the digest of a changed file into the two files that describe an exported run."""
    content = (run / name).read_bytes()
    listed = FileList.model_validate_json((run / manifest.FILES).read_bytes())
    file = ExportedFile(size=len(content), sha256=hashlib.sha256(content).hexdigest())
    files = FileList(files={**listed.files, name: file})
    (run / manifest.FILES).write_bytes(manifest.content_of(files))
    (run / manifest.RECORD).write_text(json.dumps(record(run) | {"list_sha256": manifest.digest_of(files)}))


def record(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run / "export.json").read_text())
    return content


def test_a_token_in_an_artifact_stops_the_export(ran: Workspace, tmp_path: Path) -> None:
    (ran.run_directory() / "7.txt").write_text(f"one\n{TOKEN}\n")
    outcome = ran.run("ci", "export", str(tmp_path / "out"))
    assert (outcome.exit_code, outcome.stdout) == (1, ""), str(outcome)
    assert "7.txt:2: a token of GitHub" in outcome.stderr
    assert TOKEN not in outcome.stderr
    assert not (tmp_path / "out").exists()


def test_a_secret_of_the_configuration_stops_the_export(ran: Workspace, tmp_path: Path) -> None:
    configuration = ran.directory / "config/small.yaml"
    configuration.write_text(configuration.read_text() + "secrets: {env: [API_KEY]}\n")
    (ran.run_directory() / "7.txt").write_text(f"one\n\n{SECRET}\n")
    outcome = ran.run("ci", "export", str(tmp_path / "out"), env={"API_KEY": SECRET})
    assert outcome.exit_code == 1, str(outcome)
    assert "7.txt:3: a secret in use" in outcome.stderr
    assert SECRET not in outcome.stderr


def test_an_allowed_text_is_exported_and_named(ran: Workspace, tmp_path: Path) -> None:
    configuration = ran.directory / "config/small.yaml"
    rule = "ci:\n  export: {allow: [{files: 7.txt, reason: a token of the tests}]}"
    configuration.write_text(configuration.read_text().replace("ci:", rule, 1))
    (ran.run_directory() / "7.txt").write_text(TOKEN)
    outcome = ran.run("ci", "export", str(tmp_path / "out"))
    assert outcome.exit_code == 0, str(outcome)
    assert record(Path(outcome.stdout.strip()))["allowed"] == [{"file": "7.txt", "reason": "a token of the tests"}]
    assert "a token of the tests" in (tmp_path / "out/index.html").read_text()


def test_a_failed_run_is_exported_with_its_verdict(small: Workspace, tmp_path: Path) -> None:
    assert small.run("project", "run", "small", "--presets=failing").exit_code != 0
    outcome = small.run("ci", "export", f"file://{tmp_path}/out", "--keep=30d")
    assert outcome.exit_code == 0, str(outcome)
    exported = record(tmp_path / "out/small" / small.run_directory().name)
    assert (exported["verdict"], exported["presets"]) == ("failed", ["failing"])
    assert set(exported["reports"]) == {"report.html", "junit.xml", "summary.json"}


def test_an_export_that_was_killed_is_completed_by_the_next_one(ran: Workspace, s3_server: s3.Server) -> None:
    s3_server.hold_after = 12
    with ran.start("ci", "export", "s3://exports/killed") as running:
        s3_server.wait_until_holding()
        running.send(signal.SIGKILL)
        assert running.wait().exit_code == -signal.SIGKILL
    before = set(s3_server.puts)
    assert len(before) == 12
    assert not any(name.endswith("export.json") for name in before)
    s3_server.reset()
    outcome = ran.run("ci", "export", "s3://exports/killed")
    assert outcome.exit_code == 0, str(outcome)
    after = set(s3_server.puts)
    assert not before & after, "what was uploaded is not uploaded again"
    run = f"killed/small/{ran.run_directory().name}"
    files = {str(file.relative_to(ran.run_directory())) for file in ran.run_directory().rglob("*") if file.is_file()}
    assert before | after == {f"{run}/{name}" for name in files | {"export.json", "export_files.json"}} | {
        "killed/index.html"
    }


def test_exported_runs_are_imported_from_a_url(ran: Workspace, s3_server: s3.Server, tmp_path: Path) -> None:
    del s3_server
    assert ran.run("ci", "export", "s3://exports/back").exit_code == 0
    outcome = ran.run("results", "import", "s3://exports/back", f"--directory={tmp_path}/back")
    assert outcome.exit_code == 0, str(outcome)
    name = ran.run_directory().name
    assert f"{name} of small: recorded" in outcome.stdout
    assert (tmp_path / "back/small" / name / "7.txt").read_text() == "text 7"
    assert ran.run("results", "import", f"s3://exports/back/small/{name}").exit_code == 0


def test_files_whose_names_an_artifact_refuses_are_renamed_and_get_their_names_back(
    ran: Workspace, tmp_path: Path
) -> None:
    run = ran.run_directory()
    names = ("trace 12:30:01.json", 'a"b<c>d|e*f?.txt', "dot.", "a%3Ab", "a:b")
    for name in names:
        (run / "odd ").mkdir(exist_ok=True)
        (run / "odd " / name).write_text(f"text of {name}")
    exported = ran.run("ci", "export", str(tmp_path / "out"))
    assert exported.exit_code == 0, str(exported)
    assert "odd /trace 12:30:01.json is exported as odd%20/trace 12%3A30%3A01.json" in exported.stderr
    files = [str(file.relative_to(tmp_path)) for file in (tmp_path / "out").rglob("*")]
    assert not [file for file in files if re.search(r'[":<>|*?\r\n]|[. ](?=/|$)', file)]
    listed = json.loads((tmp_path / "out/small" / run.name / "export_files.json").read_text())
    assert listed["renamed"]["odd%20/dot%2E"] == "odd /dot."
    assert "a%253Ab" in (tmp_path / "out/index.html").read_text()
    assert ran.run("results", "import", str(tmp_path / "out"), f"--directory={tmp_path}/back").exit_code == 0
    back = tmp_path / "back/small" / run.name / "odd "
    assert {file.name: file.read_text() for file in back.iterdir()} == {name: f"text of {name}" for name in names}
    assert " 0 files written" in f" {ran.run('ci', 'export', str(tmp_path / 'out')).stderr}"


def test_a_directory_of_exports_is_imported_like_its_url(ran: Workspace, tmp_path: Path) -> None:
    name = ran.run_directory().name
    assert ran.run("ci", "export", str(tmp_path / "out")).exit_code == 0
    for folder in ("out", "out/small", f"out/small/{name}"):
        for place in (str(tmp_path / folder), f"file://{tmp_path}/{folder}"):
            outcome = ran.run("results", "import", place, f"--directory={tmp_path}/back")
            assert (outcome.exit_code, f"{name} of small: recorded" in outcome.stdout) == (0, True), str(outcome)
            assert (tmp_path / "back/small" / name / "7.txt").read_text() == "text 7"
    (tmp_path / "out/small" / name / "export.json").unlink()
    outcome = ran.run("results", "import", str(tmp_path / "out/small" / name))
    assert (outcome.exit_code, "has no exported runs" in outcome.stderr) == (2, True), str(outcome)


def test_a_damaged_export_is_refused_and_other_runs_are_imported(ran: Workspace, tmp_path: Path) -> None:
    first = ran.run_directory()
    assert ran.run("ci", "export", str(tmp_path / "out")).exit_code == 0
    assert ran.run("project", "run", "small").exit_code == 0
    assert ran.run("ci", "export", str(tmp_path / "out")).exit_code == 0
    (tmp_path / "out/small" / first.name / "7.txt").write_text("text X")
    outcome = ran.run("results", "import", f"file://{tmp_path}/out")
    assert outcome.exit_code == 2, str(outcome)
    assert "7.txt is damaged" in outcome.stderr
    assert outcome.stdout.count("recorded") == 1


@pytest.mark.parametrize(
    ("file", "before", "after", "reason"),
    [
        ("journal.jsonl", '"project": "small"', '"project": "victim"', "the journal is not that of the run"),
        ("run.json", '"revision": ', '"revision": {}, "more": ', "is damaged"),
    ],
)
def test_a_forged_run_prevents_no_other_import(
    ran: Workspace, tmp_path: Path, file: str, before: str, after: str, reason: str
) -> None:
    forged = tmp_path / "out/small" / ran.run_directory().name
    assert ran.run("ci", "export", str(tmp_path / "out")).exit_code == 0
    assert ran.run("project", "run", "small").exit_code == 0
    assert ran.run("ci", "export", str(tmp_path / "out")).exit_code == 0
    content = (forged / file).read_text()
    assert before in content
    (forged / file).write_text(content.replace(before, after))
    list_again(forged, file)
    outcome = ran.run("results", "import", f"file://{tmp_path}/out")
    assert outcome.exit_code == 2, str(outcome)
    assert reason in outcome.stderr
    assert outcome.stdout.count("recorded") == 1


def test_a_secret_that_an_override_chose_stops_the_export(small: Workspace, tmp_path: Path) -> None:
    (tmp_path / "vault").mkdir()
    (tmp_path / "vault/other").write_text(SECRET)
    (tmp_path / "vault/first").write_text("another-value")
    configuration = small.directory / "config/small.yaml"
    configuration.write_text(
        configuration.read_text() + 'secrets: {dir: {env_key: VAULT}, name: first}\ntoken: "*$@secrets.name"\n'
    )
    env = {"VAULT": f"{tmp_path}/vault"}
    assert small.run("project", "run", "small", "--overrides={secrets.name: other}", env=env).exit_code == 0
    (small.run_directory() / "log.txt").write_text(f"login with {SECRET}\n")
    outcome = small.run("ci", "export", str(tmp_path / "out"), env=env)
    assert outcome.exit_code == 1, str(outcome)
    assert "log.txt" in outcome.stderr


def test_a_place_without_exports_is_named(small: Workspace, tmp_path: Path) -> None:
    outcome = small.run("results", "import", f"file://{tmp_path}/nothing")
    assert outcome.exit_code == 2
    assert "has no exported runs" in outcome.stderr


def test_an_unreachable_store_is_an_error_of_infrastructure(ran: Workspace) -> None:
    environment = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
    outcome = ran.run("ci", "export", "s3://exports/x", env=environment | {"AWS_MAX_ATTEMPTS": "1"})
    assert outcome.exit_code == 3, str(outcome)
    assert "s3://exports/x/index.html cannot be read" in outcome.stderr


def test_an_export_is_kept_for_an_hour_at_least(workspace: Workspace) -> None:
    outcome = workspace.run("ci", "export", "--output=x", "--keep=30")
    assert outcome.exit_code == 2
    assert "--keep must be a number of at least" in outcome.stderr
