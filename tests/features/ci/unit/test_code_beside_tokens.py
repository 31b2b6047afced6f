"""No job with a token or credentials executes code of a pull request: generated workflows, and examples in docs/."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.features.ci.fakes import github_expressions
from toolbox.config.contracts.ci import Contract
from toolbox.features.ci import workflows
from toolbox.ground.system import places
from toolbox.orchestration import request
from toolbox.orchestration.request import RunRequest

ROOT = places.builtin_root()
FORGES = (ROOT / "docs/forges.md").read_text(encoding="utf-8")
WORKFLOWS = (ROOT / "docs/ci_workflows.md").read_text(encoding="utf-8")
EVENTS = {"schedule", "workflow_dispatch", "push", "pull_request", "issue_comment"}
LABEL, MERGE, HEAD, OLD_BASE, TRIGGERED = "label", "merge commit", "head", "base of an old pull request", "triggered"
ALL_TRIGGERS = {"schedule": "0 0 * * *", "dispatch": True, "push": ["main"], "label": LABEL, "comment": True}
SECRETS = {"google": True, "environment": "e", "secrets": {"A": "B"}, "secret_files": {"f": "B"}, "revision": "r"}


def block_of(text: str, first: str) -> Any:
    """Return the YAML of the code block that begins with a line."""
    match = re.search(rf"^```yaml\n({re.escape(first)}\n.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert match is not None, first
    return yaml.safe_load(match[1])


BLOCKS: dict[str, Any] = {
    "documented workflows": block_of(WORKFLOWS, "ci:")["ci"],
    "documented comments": yaml.safe_load(FORGES.partition("so add it to")[2].split("```")[1].removeprefix("yaml"))[
        "ci"
    ],
    "tpu_ci": yaml.safe_load((ROOT / "config/tpu_ci.yaml").read_text(encoding="utf-8"))["ci"],
    "everything": {
        "commenters": {"members_token": "MEMBERS"},
        "workflows": {"w": {**ALL_TRIGGERS, **SECRETS, "issue": True}, "cpu": {"pull_request": True, "push": ["main"]}},
        "reap": {},
    },
    "label": {"workflows": {"w": {"label": LABEL, **SECRETS}, "plain": {"label": LABEL}}},
}


def contexts(event: str, label: str) -> dict[str, Any]:
    """Return what expressions see: all jobs before have succeeded, and the pull request is old."""
    pull = {"head": {"sha": HEAD, "repo": {"full_name": "o/n"}}, "base": {"sha": OLD_BASE, "ref": "of the author"}}
    about: dict[str, Any] = {
        "pull_request": {"pull_request": pull, "label": {"name": label}},
        "issue_comment": {"issue": {"pull_request": {}, "number": 1}, "comment": {"body": "/test "}},
    }
    is_comment = event == "issue_comment"
    gate = {"result": "success" if is_comment else "skipped", "outputs": {"revision": HEAD} if is_comment else {}}
    done = {"result": "success", "outputs": {}}
    facts = {
        "event_name": event,
        "event": {"repository": {"default_branch": "main"}, **about.get(event, {})},
        "repository": "o/n",
        "ref_name": "main",
        "sha": MERGE if event == "pull_request" else TRIGGERED,
    }
    return {"github": facts, "needs": {"gate": gate, "run": done, "merge": done, "reap": done}}


def privileged_checkouts(block: dict[str, Any], shards: int | None) -> Iterator[tuple[str, str]]:
    """Yield each revision that a job with a token or credentials checks out, after the name of its file and event."""
    contract = Contract.model_validate(block)
    label = next((item.label for item in contract.workflows.values() if item.label), LABEL)
    functions = {"always": lambda: True, "cancelled": lambda: False}
    texts = workflows.render("p", contract, secrets_variable="VAULT", shards=shards)
    for file, content in ((name, yaml.safe_load(text)) for name, text in texts.items()):
        assert set(content["on"]) <= EVENTS
        for event in content["on"]:
            known = contexts(event, label)
            for name, job in content["jobs"].items():
                has_secrets = "secrets." in str(job) or "github.token" in str(job) or "environment" in job
                if not has_secrets and "write" not in job["permissions"].values():
                    continue
                if not github_expressions.evaluate(job.get("if", "'x'"), known, functions):
                    continue
                for step in job["steps"]:
                    if "actions/checkout" in step.get("uses", ""):
                        default = MERGE if event == "pull_request" else TRIGGERED
                        ref = github_expressions.inserted(step["with"].get("ref", default), known, {})
                        yield f"{file} {event} {name}", ref


@pytest.mark.parametrize("shards", [None, 3])
@pytest.mark.parametrize("name", BLOCKS)
def test_a_job_of_github_with_a_token_checks_out_no_code_of_a_pull_request(name: str, shards: int | None) -> None:
    checkouts = list(privileged_checkouts(BLOCKS[name], shards))
    assert checkouts
    assert {where: ref for where, ref in checkouts if ref not in {TRIGGERED, "main"}} == {}


def test_a_label_checks_out_the_default_branch_as_it_is_now() -> None:
    refs = {ref for where, ref in privileged_checkouts(BLOCKS["label"], None) if " pull_request " in where}
    assert refs == {"main"}


def test_the_documented_workflow_runs_cells_on_other_machines() -> None:
    (workflow,) = BLOCKS["documented comments"]["workflows"].values()
    for preset in ([], *([each] for each in workflow["comment_presets"])):
        plan = request.load(RunRequest("training_e2e", (*workflow["presets"], *preset)), needs_secrets=False).plan
        assert plan is not None
        assert "local" not in {target.backend for target in plan.targets.values()}


def test_the_job_of_gitlab_has_the_code_of_the_default_branch() -> None:
    (job,) = block_of(FORGES, "topgallant:").values()
    (rule,) = job["rules"]
    conditions = rule["if"].split(" && ")
    assert '$CI_PIPELINE_SOURCE == "trigger"' in conditions
    assert "$CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH" in conditions
    assert not [line for line in (*job["before_script"], *job["script"]) if "git " in line or "MERGE_REQUEST" in line]


def test_the_job_of_jenkins_has_the_code_of_main_and_one_step_with_the_token() -> None:
    match = re.search(r"^```groovy\n(.*?)^```$", FORGES, re.MULTILINE | re.DOTALL)
    assert match is not None
    text = match[1]
    assert "skipDefaultCheckout()" in text
    assert re.findall(r"\bgit branch: '(\w+)'|\bcheckout\b", text) == ["main"]
    assert text.count("topgallant-github'") == 1
    before, _, after = text.partition("withCredentials([")
    assert "GH_TOKEN" not in before
    assert re.search(r"^ {8}\}$", after, re.MULTILINE), "the block ends in its step"
    inside = re.split(r"^ {8}\}$", after, maxsplit=1, flags=re.MULTILINE)[0]
    assert re.findall(r"sh '([\w./]+ \w+ \w+)", inside) == ["./run_toolbox.py ci run"]


def test_the_job_of_prow_has_an_image_without_code_of_the_pull_request() -> None:
    content = block_of(FORGES, "base_images:")
    (job,) = content["tests"]
    assert job["secrets"]
    assert job["container"]["from"] in content["base_images"]
    assert job["container"]["clone"] is False
    assert "git " not in job["commands"]


@pytest.mark.parametrize("system", ["GitHub, comment", "GitHub, label", "GitLab", "Jenkins", "Prow"])
def test_the_page_says_which_code_gets_which_token(system: str) -> None:
    (row,) = re.findall(rf"^\| {system} \|(.*)\|$", FORGES, re.MULTILINE)
    assert all(cell.strip() for cell in row.split("|"))
    assert len(row.split("|")) == 3
