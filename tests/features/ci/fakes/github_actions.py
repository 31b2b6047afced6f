"""Runs workflow files as a runner of GitHub Actions does: conditions, environment variables, scripts and outputs.

Scripts are really executed by bash, with the options that GitHub uses. Actions (`uses`) do nothing, except that
artifacts are kept and given to later jobs. Each job begins with a clean checkout: without the directories that earlier
jobs wrote. The jobs of a matrix run one after the other; `Runner.run` returns each of them as `run (1)`, and together
as `run`.
"""

from __future__ import annotations

import fnmatch
import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests import forked_commands
from tests.features.ci.fakes import github_expressions
from tests.features.ci.servers import github

REPOSITORY = "owner/name"
REVISION = "5" * 40
RUN_ID = 77
_BASH = ("bash", "--noprofile", "--norc", "-eo", "pipefail")
_WRITTEN = ("artifacts", "export", "shards")


@dataclass
class Step:
    """A step that was executed, or skipped."""

    outcome: str
    output: str = ""
    outputs: dict[str, str] = field(default_factory=dict)


@dataclass
class Job:
    """A job that was executed, or skipped."""

    result: str
    steps: dict[str, Step] = field(default_factory=dict)
    outputs: dict[str, Any] = field(default_factory=dict)

    @property
    def ran(self) -> list[str]:
        """The names of the steps that were not skipped."""
        return [name for name, step in self.steps.items() if step.outcome != "skipped"]

    @property
    def output(self) -> str:
        """The output of all steps."""
        return "\n".join(step.output for step in self.steps.values())


class Runner:
    """Runs the jobs of a workflow file in a directory.

    Args:
        directory: the checkout.
        home: the directory for the summaries and the temporary files.
        server: the API of GitHub. Each job gets a token with the permissions of the job.
        failing: the names of actions that fail.
    """

    def __init__(self, directory: Path, home: Path, server: github.Server, *, failing: tuple[str, ...] = ()) -> None:
        self.directory = directory
        self.home = home
        self.server = server
        self.failing = failing
        self.summary = home / "summary"
        self.secrets = {"DATABASE": "secret-of-the-database"}
        self._artifacts: dict[str, Path] = {}
        self._event = {"name": "workflow_dispatch", "payload": "{}", "workflow": ""}
        self._names: dict[str, str] = {}  # the artifacts of the workflow run: numbers by name
        home.mkdir(exist_ok=True)

    def forget(self, artifact: str) -> None:
        """Remove an artifact, as if its job had been lost before the upload."""
        del self._names[artifact]

    def run(
        self,
        workflow: Path,
        event: str,
        payload: Mapping[str, Any] | None = None,
        *,
        earlier: Mapping[str, Job] | None = None,
        **github: Any,
    ) -> dict[str, Job]:
        """Run a workflow file for an event, and return its jobs.

        Args:
            earlier: the jobs of an earlier attempt of the same workflow run: the jobs that failed are run again, and so
                are those that need them. The others keep their results. The artifacts of the workflow run are kept.
        """
        if earlier is None:
            self._names.clear()
        content = yaml.safe_load(workflow.read_text(encoding="utf-8"))
        assert event in content["on"], f"{workflow.name} has no trigger {event}"
        facts = {
            "event_name": event,
            "event": {"repository": {"default_branch": "main"}, **(payload or {})},
            "repository": REPOSITORY,
            "sha": REVISION,
            "ref": "refs/pull/7/merge" if event == "pull_request" else "refs/heads/main",
            "ref_name": "7/merge" if event == "pull_request" else "main",
            "run_attempt": 1,
            **github,
        }
        ref = f"{REPOSITORY}/.github/workflows/{workflow.name}@{facts['ref']}"
        self._event.update(name=event, payload=json.dumps(facts["event"]), workflow=ref)
        jobs: dict[str, Job] = {}
        again = set[str]()
        for name, job in content["jobs"].items():
            needs = [job["needs"]] if isinstance(job.get("needs"), str) else job.get("needs", [])
            needed = {need: jobs[need] for need in needs}
            if earlier is not None and earlier[name].result in {"success", "skipped"} and not again & set(needs):
                jobs |= {key: done for key, done in earlier.items() if key.partition(" (")[0] == name}
                continue
            again.add(name)
            if "strategy" not in job:
                jobs[name] = self._run_job(job, facts, needed)
                continue
            for title, values in _combinations(name, job["strategy"]["matrix"]):
                is_kept = earlier is not None and earlier[title].result == "success"
                jobs[title] = earlier[title] if earlier and is_kept else self._run_job(job, facts, needed, values)
            jobs[name] = _together([done for title, done in jobs.items() if title.startswith(f"{name} (")])
        return jobs

    def _run_job(
        self,
        job: Mapping[str, Any],
        facts: Mapping[str, Any],
        needs: Mapping[str, Job],
        matrix: Mapping[str, Any] | None = None,
    ) -> Job:
        permissions = {name.replace("-", "_"): level for name, level in (job.get("permissions") or {}).items()}
        contexts = {
            "github": {"token": self.server.add_token(**permissions), **facts},
            "needs": {name: {"result": each.result, "outputs": each.outputs} for name, each in needs.items()},
            "vars": {"GCP_WORKLOAD_IDENTITY_PROVIDER": "provider", "GCP_SERVICE_ACCOUNT": "account"},
            "secrets": self.secrets,
            "matrix": matrix or {},
            "runner": {"temp": str(self.home / "temp")},
        }
        ready = all(each.result == "success" for each in needs.values())
        if not _holds(job.get("if", ""), contexts, ready):
            return Job("skipped")
        for path in [*(self.directory / name for name in _WRITTEN), self.home / "temp"]:
            shutil.rmtree(path, ignore_errors=True)
        done = Job("success")
        for step in job["steps"]:
            known = {
                step["id"]: done.steps[step["name"]]
                for step in job["steps"]
                if step.get("id") and step["name"] in done.steps
            }
            steps = {
                "steps": {name: {"outcome": each.outcome, "outputs": each.outputs} for name, each in known.items()}
            }
            done.steps[step["name"]] = result = self._run_step(step, {**contexts, **steps}, done.result == "success")
            if result.outcome == "failure" and not step.get("continue-on-error"):
                done.result = "failure"
        known = {step["id"]: done.steps[step["name"]] for step in job["steps"] if step.get("id")}
        steps = {"steps": {name: {"outputs": each.outputs} for name, each in known.items()}}
        done.outputs = {
            name: github_expressions.inserted(text, {**contexts, **steps}, {})
            for name, text in job.get("outputs", {}).items()
        }
        return done

    def _run_step(self, step: Mapping[str, Any], contexts: Mapping[str, Any], ready: bool) -> Step:
        if not _holds(step.get("if", ""), contexts, ready):
            return Step("skipped")
        if "uses" in step:
            return self._use(step, contexts)
        variables = {
            name: github_expressions.inserted(str(text), contexts, {}) for name, text in step.get("env", {}).items()
        }
        facts = contexts["github"]
        return self.execute(step["run"], variables, facts["sha"], run_id=facts.get("run_id", RUN_ID))

    def _use(self, step: Mapping[str, Any], contexts: Mapping[str, Any]) -> Step:
        action = step["uses"].partition("@")[0]
        values = {
            name: github_expressions.inserted(str(text), contexts, {}) for name, text in step.get("with", {}).items()
        }
        if action in self.failing:
            return Step("failure")
        if action == "actions/upload-artifact" and (self.directory / values["path"]).is_dir():
            number = str(len(self._artifacts) + 1)
            assert values["name"] not in self._names, "GitHub refuses a second artifact of the same name"
            self._names[values["name"]] = number
            self._artifacts[number] = self.home / "uploaded" / number
            shutil.copytree(self.directory / values["path"], self._artifacts[number])
            return Step("success", outputs={"artifact-id": number})
        if action == "actions/download-artifact":
            for name, number in self._names.items() if "pattern" in values else ():
                if fnmatch.fnmatchcase(name, values["pattern"]):
                    shutil.copytree(self._artifacts[number], self.directory / values["path"] / name)
            if "artifact-ids" in values:
                shutil.copytree(self._artifacts[values["artifact-ids"]], self.directory / values["path"])
        return Step("success")

    def execute(
        self, script: str, variables: Mapping[str, str], revision: str = REVISION, *, run_id: int = RUN_ID
    ) -> Step:
        """Execute the script of a step."""
        assert "${{" not in script
        files = {name: self.home / name.lower() for name in ("GITHUB_OUTPUT", "GITHUB_ENV")}
        for file in files.values():
            file.write_text("")
        (self.home / "temp").mkdir(exist_ok=True)
        (self.home / "script").write_text(script)
        (self.home / "event.json").write_text(self._event["payload"])
        completed = subprocess.run(
            [*_BASH, str(self.home / "script")],
            cwd=self.directory,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.home),
                "XDG_STATE_HOME": str(self.home / "state"),
                "TOPGALLANT_NO_VENV": "1",
                "GITHUB_API_URL": self.server.url,
                "GITHUB_ACTIONS": "true",
                "GITHUB_EVENT_NAME": self._event["name"],
                "GITHUB_EVENT_PATH": str(self.home / "event.json"),
                "GITHUB_REPOSITORY": REPOSITORY,
                "GITHUB_SERVER_URL": "https://github.com",
                "GITHUB_RUN_ID": str(run_id),
                "GITHUB_SHA": revision,
                "GITHUB_WORKFLOW_REF": self._event["workflow"],
                "GITHUB_STEP_SUMMARY": str(self.summary),
                "RUNNER_TEMP": str(self.home / "temp"),
                **{name: str(file) for name, file in files.items()},
                **forked_commands.start_variables(),
                **variables,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=100,
            check=False,
        )
        assert files["GITHUB_ENV"].read_text() == "", "the scripts of our workflows don't change later steps"
        outputs = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
        return Step("success" if completed.returncode == 0 else "failure", completed.stdout, outputs)


def _combinations(name: str, matrix: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the title and the values of each job of a matrix."""
    for values in itertools.product(*matrix.values()):
        yield f"{name} ({', '.join(map(str, values))})", dict(zip(matrix, values, strict=True))


def _together(jobs: list[Job]) -> Job:
    """Return the jobs of a matrix as one job, as the jobs that need them see it."""
    results = {job.result for job in jobs}
    worst = next(result for result in ("failure", "cancelled", "success", "skipped") if result in results)
    steps = {f"{number}: {name}": step for number, job in enumerate(jobs, 1) for name, step in job.steps.items()}
    return Job(worst, steps, {name: value for job in jobs for name, value in job.outputs.items()})


def _holds(condition: str, contexts: Mapping[str, Any], ready: bool) -> bool:
    """Return whether a job or a step runs. Without a status function, everything before must have succeeded."""
    functions = {"always": lambda: True, "cancelled": lambda: False, "failure": lambda: not ready}
    has_status = any(f"{name}(" in condition for name in functions)
    value = github_expressions.evaluate(condition, contexts, functions) if condition else True
    return bool(value) and (ready or has_status)
