"""People are told once when a series of runs begins to fail, and once when it passes again."""

from __future__ import annotations

import json
import signal
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.features.notifications.servers.webhook import PATH, Answer, Server
from toolbox.testing import Outcome, Workspace

TOKEN = PATH.rpartition("/")[2]
CI = {"CI": "true", "JOB_NAME": "nightly", "BUILD_URL": "https://ci.lab/job/7"}
BLOCK = """
        secrets:
          dir: {name: the vault, env_key: VAULT}
          hook: hook
        notifications:
          team: {notifier: slack, url: "*$@secrets.hook"}
"""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as opened:
        yield opened


class Runs:
    """Runs of the project `small`, which post to a server."""

    def __init__(self, workspace: Workspace, server: Server) -> None:
        self.workspace = workspace
        self.server = server
        config = workspace.directory / "config/small.yaml"
        workspace.write(
            {"held/hook": server.url, "config/small.yaml": f"{config.read_text()}\n{textwrap.dedent(BLOCK)}"}
        )

    def run(self, test: str = "true", *flags: str, **env: str) -> Outcome:
        overrides = f"--overrides={json.dumps({'commands.test': [test]})}"
        return self.workspace.run("project", "run", "small", overrides, *flags, env=self.env(env))

    def env(self, more: dict[str, str] | None = None) -> dict[str, str]:
        return {**CI, "VAULT": str(self.workspace.directory / "held"), **(more or {})}

    @property
    def titles(self) -> list[str]:
        return [message["text"] for message in self.server.messages]


@pytest.fixture
def runs(small: Workspace, server: Server) -> Runs:
    return Runs(small, server)


def test_fail_fail_pass_are_two_messages(runs: Runs) -> None:
    assert [runs.run(test).exit_code for test in ("true", "exit 7", "exit 7", "true", "true")] == [0, 1, 1, 0, 0]
    assert runs.titles == ["small fails", "small passes again"]
    first, second = runs.server.messages
    failed = runs.workspace.runs()[1]
    assert f"<https://ci.lab/job/7|{failed.name}>" in first["blocks"][0]["text"]["text"]
    assert "ended with status 7" in first["blocks"][1]["text"]["text"]
    assert f"it failed since the run {failed.name}" in second["blocks"][0]["text"]["text"]


def test_each_job_and_each_choice_of_presets_is_a_series_of_its_own(runs: Runs) -> None:
    runs.run("exit 7")
    runs.run("exit 7", "--presets=loud")
    runs.run("exit 7", JOB_NAME="weekly")
    runs.run("exit 7")
    assert runs.titles == ["small fails", "small (loud) fails", "small fails"]


@pytest.mark.parametrize("answer", [Answer(500), Answer(403, b"no_service"), Answer(is_endless=True, status=404)])
def test_a_failing_server_is_one_warning_and_the_next_run_tries_again(runs: Runs, answer: Answer) -> None:
    runs.server.usual = answer
    outcome = runs.run("exit 7")
    assert outcome.exit_code == 1, str(outcome)
    assert outcome.stderr.count("warning: the notification `team` of this run was not delivered: HTTP status ") == 1
    assert runs.workspace.summary()["verdict"] == "failed"
    journal = (runs.workspace.run_directory() / "journal.jsonl").read_text()
    assert json.loads(journal.splitlines()[-1])["event"] == "NotificationEnded"
    runs.server.usual = Answer()
    runs.server.requests.clear()
    assert runs.run("exit 7").exit_code == 1
    assert runs.run("exit 7").exit_code == 1
    assert runs.titles == ["small fails"]


def test_a_server_that_is_gone_changes_no_verdict(runs: Runs) -> None:
    (runs.workspace.directory / "held/hook").write_text("http://127.0.0.1:9/s3cr3t-path")
    outcome = runs.run()
    assert (outcome.exit_code, outcome.stderr) == (0, ""), str(outcome)
    outcome = runs.run("exit 7")
    assert outcome.exit_code == 1
    assert "was not delivered: ConnectError" in outcome.stderr
    assert "s3cr3t" not in str(outcome)


def test_the_url_is_in_no_output_and_no_file_of_a_run(runs: Runs) -> None:
    runs.server.answers = [Answer(404, f"Cannot POST {PATH}".encode())]
    outcomes = [runs.run("exit 7", "--debug"), runs.run("exit 7", "--debug")]
    outcomes.append(runs.workspace.run("config", "show", "small", env=runs.env()))
    assert len(runs.server.requests) == 2
    for outcome in outcomes:
        assert TOKEN not in str(outcome)
    assert runs.workspace.holding(TOKEN) == []


def test_a_url_in_the_configuration_itself_is_refused_without_repeating_it(runs: Runs) -> None:
    overrides = f"--overrides={json.dumps({'notifications.team.url': runs.server.url})}"
    outcome = runs.workspace.run("project", "run", "small", overrides, env=runs.env())
    assert outcome.exit_code == 2, str(outcome)
    assert "`notifications.team`: notifier `slack`: url: must be a secret" in outcome.stderr
    assert TOKEN not in outcome.stderr


def test_a_run_on_a_laptop_says_nothing_and_needs_no_secret(runs: Runs) -> None:
    laptop = runs.workspace.run("project", "run", "small", "--presets=failing")
    assert laptop.exit_code == 1, str(laptop)
    assert "warning" not in laptop.stderr
    assert runs.run("exit 7", CI="", BUILD_URL="").exit_code == 1
    assert runs.run("exit 7", TOPGALLANT_NOTIFY="false").exit_code == 1
    assert runs.titles == []
    assert runs.run("exit 7", CI="", BUILD_URL="", TOPGALLANT_NOTIFY="true").exit_code == 1
    assert runs.titles == ["small fails"]


@pytest.mark.parametrize("flag", ["--overrides={results: {baseline: false}}", "--phases=prepare,post_cleanup"])
def test_a_run_that_does_not_count_says_nothing(runs: Runs, flag: str) -> None:
    config = runs.workspace.directory / "config/small.yaml"
    config.write_text(f"{config.read_text()}results: null\n")
    outcome = runs.workspace.run("project", "run", "small", "--presets=failing", flag, env=runs.env())
    assert outcome.exit_code in {0, 1}, str(outcome)
    assert runs.titles == []


def test_a_run_of_another_branch_says_nothing(runs: Runs) -> None:
    assert runs.run("exit 7", TOPGALLANT_RESULTS_BASELINE="false").exit_code == 1
    assert runs.titles == []


def test_a_missing_secret_is_reported_before_the_run(runs: Runs) -> None:
    outcome = runs.run("true", VAULT=str(runs.workspace.directory))
    assert outcome.exit_code == 2, str(outcome)
    assert runs.workspace.runs() == []


@pytest.mark.parametrize(
    ("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"]
)
def test_a_run_that_was_cancelled_says_nothing(runs: Runs, number: signal.Signals, exit_code: int) -> None:
    overrides = f"--overrides={json.dumps({'commands.test': ['echo begun; sleep 60']})}"
    with runs.workspace.start("project", "run", "small", overrides, env=runs.env()) as running:
        running.wait_for("begun")
        running.send(number)
        assert running.wait().exit_code == exit_code
    assert runs.titles == []


def test_a_run_that_exceeds_its_deadline_is_a_failure(runs: Runs) -> None:
    outcome = runs.run("sleep 60", "--deadline=5")
    assert outcome.exit_code == 124, str(outcome)
    assert runs.titles == ["small fails"]
    assert "cancelled (timeout)" in runs.server.messages[0]["blocks"][0]["text"]["text"]


def test_an_exception_of_the_orchestration_is_a_failure(runs: Runs) -> None:
    orchestration = runs.workspace.directory / "projects/small/orchestration.py"
    orchestration.write_text(orchestration.read_text() + "\ndef test():\n    raise KeyError('no luck')\n")
    assert runs.run().exit_code == 3
    assert runs.titles == ["small fails"]


def test_without_a_store_the_verdict_stays_the_same(runs: Runs, tmp_path: Path) -> None:
    outcome = runs.run("exit 7", TOPGALLANT_RESULTS_DATABASE=str(tmp_path))
    assert outcome.exit_code == 1, str(outcome)
    assert "people are not notified: the store " in outcome.stderr
    assert runs.titles == []


def test_a_notifier_of_the_workspace_that_raises_changes_no_verdict(runs: Runs) -> None:
    broken = '''
        """Raises."""
        from pydantic import BaseModel


        class Notifier(BaseModel):
            """No fields."""

            def notify(self, notification):
                """Raise."""
                raise SystemExit(9)
    '''
    runs.workspace.write({"notifiers/broken.py": broken})
    config = runs.workspace.directory / "config/small.yaml"
    config.write_text(config.read_text().replace("notifications:\n", "notifications:\n  own: {notifier: broken}\n"))
    outcome = runs.run("exit 7")
    assert outcome.exit_code == 1, str(outcome)
    assert "the notification `own` of this run was not delivered: SystemExit: 9" in outcome.stderr
    assert runs.titles == ["small fails"]
