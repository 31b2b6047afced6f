"""The workflow files are valid by the published schema and by linters, safe, and deterministic."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.features.ci.fakes import github_expressions
from toolbox.config.contracts.ci import Contract
from toolbox.features.ci import workflows
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.forge_data import Commenters

ROOT = Path(__file__).parents[4]
PROGRAMS = Path(sys.executable).parent
CPU = {"presets": ["cpu"], "pull_request": True, "push": ["main", "release/**"], "timeout": 900}
NIGHTLY = {"presets": ["nightly"], "schedule": "17 2 * * *", "dispatch": True, "google": True, "timeout": 5400}
ON_DEMAND = {"label": "run-tpu-tests", "comment": True, "google": True, "revision": "tests.revision"}
BLOCK = {
    "workflows": {
        "cpu": CPU,
        "nightly": {
            **NIGHTLY,
            "environment": "tpu",
            "secrets": {"TOPGALLANT_RESULTS_DATABASE": "DATABASE"},
            "secret_files": {"token": "TOKEN", "other.txt": "TOKEN"},
        },
        "on_demand": ON_DEMAND,
        "by_hand": {"dispatch": True},
        "label_only": {"label": "it's", "revision": 'tests["a.b"]'},
    },
    "reap": {"google": True, "presets": ["nightly"]},
}
SHARDED = {"workflows": {**BLOCK["workflows"], "label_only": {"label": "it's", "revision": "r", "shards": 256}}}
HOSTILE = [
    "'; touch pwned; '",
    '"; touch pwned; "',
    "$(touch pwned)",
    "`touch pwned`",
    "a: b # c",
    "[x",
    "*x",
    "%x",
    "it's",
]


@pytest.fixture(params=["whole", "sharded"])
def texts(request: pytest.FixtureRequest) -> dict[str, str]:
    """Return the texts of the workflow files by name, with and without shards."""
    return rendered({**BLOCK, **SHARDED}, shards=3) if request.param == "sharded" else rendered(BLOCK)


@pytest.fixture
def files(texts: dict[str, str], tmp_path: Path) -> list[Path]:
    """Return the workflow files in a repository."""
    folder = tmp_path / ".github" / "workflows"
    workflows.apply(workflows.compare(texts, folder, "tpu_ci"))
    return sorted(folder.iterdir())


def rendered(block: dict[str, Any], shards: int | None = None) -> dict[str, str]:
    return workflows.render("tpu_ci", Contract.model_validate(block), secrets_variable="VAULT", shards=shards)


def jobs(texts: dict[str, str]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield each job with its file and its name."""
    for file, text in texts.items():
        for name, job in yaml.safe_load(text)["jobs"].items():
            yield file, name, job


def steps(texts: dict[str, str]) -> list[dict[str, Any]]:
    return [step for _, _, job in jobs(texts) for step in job["steps"]]


def check(*command: str | Path, cwd: Path | None = None) -> None:
    completed = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr


def test_the_files_are_valid_by_the_published_schema(files: list[Path]) -> None:
    check(PROGRAMS / "check-jsonschema", "--builtin-schema", "vendor.github-workflows", *files)


def test_yamllint_accepts_the_files(files: list[Path]) -> None:
    check(PROGRAMS / "yamllint", "--strict", "-c", ROOT / ".yamllint", *files)


@pytest.mark.skipif(shutil.which("actionlint") is None, reason="actionlint is not on the PATH")
def test_actionlint_accepts_the_files(files: list[Path]) -> None:
    check("actionlint", "-no-color", *files)


def test_shellcheck_accepts_every_script(texts: dict[str, str], tmp_path: Path) -> None:
    scripts = [step["run"] for step in steps(texts) if "run" in step]
    assert len(scripts) > 20
    files = [tmp_path / f"{number}.sh" for number in range(len(scripts))]
    for file, script in zip(files, scripts, strict=True):
        file.write_text(f"#!/bin/bash\n{script}")
    check(PROGRAMS / "shellcheck", "--enable=all", "--exclude=SC2154,SC2250", *files)  # GitHub sets the variables


def test_no_script_contains_an_expression(texts: dict[str, str]) -> None:
    for step in steps(texts):
        assert "${{" not in step.get("run", ""), step["name"]


def test_scripts_are_short(texts: dict[str, str]) -> None:
    assert max(len(step["run"].splitlines()) for step in steps(texts) if "run" in step) <= 4


def test_actions_are_pinned_to_commits_with_their_version(texts: dict[str, str]) -> None:
    lines = [line for text in texts.values() for line in text.splitlines() if " uses: " in line]
    assert lines
    for line in lines:
        assert re.search(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line


def test_each_job_has_its_own_permissions_and_a_time_limit(texts: dict[str, str]) -> None:
    assert all(yaml.safe_load(text)["permissions"] == {} for text in texts.values())
    for file, name, job in jobs(texts):
        assert job["permissions"], f"{file} {name}"
        assert job["timeout-minutes"] > 0


def test_no_job_can_write_to_github_and_run_tests(texts: dict[str, str]) -> None:
    for file, name, job in jobs(texts):
        if name == "run":
            assert set(job["permissions"].items()) <= {("contents", "read"), ("id-token", "write")}, file
    writers = {name: job["permissions"] for _, name, job in jobs(texts) if "write" in job["permissions"].values()}
    assert writers["issue"] == {"contents": "read", "issues": "write"}
    commenting = {"contents": "read", "pull-requests": "write", "statuses": "write"}
    assert writers["report"] == commenting | {"checks": "write"}
    assert writers["gate"] == {"actions": "write", **commenting}


def test_only_workflows_with_google_may_ask_for_a_token(texts: dict[str, str]) -> None:
    with_token = {file for file, _, job in jobs(texts) if "id-token" in job["permissions"]}
    assert with_token == {"tpu_ci-nightly.yml", "tpu_ci-on_demand.yml", "tpu_ci-reap.yml"}


def test_there_is_no_key_no_cache_and_no_kept_token(texts: dict[str, str]) -> None:
    for text in texts.values():
        assert "credentials_json" not in text
        assert "pull_request_target:" not in text
        assert "\n          cache:" not in text
        assert "actions/cache" not in text
        assert "|| true" not in text
    for step in steps(texts):
        if "actions/checkout" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False


def test_secrets_reach_only_the_steps_that_need_them(texts: dict[str, str]) -> None:
    names = [step["name"] for step in steps(texts) if "${{ secrets." in str(step)]
    assert names == ["Write the files of secrets", "Run the project", "Clean up", "Export the run directory"]


def test_the_deadline_of_the_run_ends_before_the_time_limits(texts: dict[str, str]) -> None:
    job = yaml.safe_load(texts["tpu_ci-nightly.yml"])["jobs"]["run"]
    step = next(step for step in job["steps"] if step["name"] == "Run the project")
    assert "--deadline=5400" in step["run"]
    assert 90 < step["timeout-minutes"] < job["timeout-minutes"]


def test_the_same_configuration_gives_the_same_files() -> None:
    assert rendered(BLOCK) == rendered(BLOCK)
    assert rendered(BLOCK, shards=2) == rendered(BLOCK, shards=2)


def test_shards_are_jobs_of_a_matrix_whose_runs_one_job_merges() -> None:
    for name, text in rendered({**BLOCK, **SHARDED}, shards=3).items():
        assert text.startswith("# Generated by `./run_toolbox.py ci workflows tpu_ci --shards=3` from"), name
        jobs = yaml.safe_load(text)["jobs"]
        if name == "tpu_ci-reap.yml":
            continue
        count = 256 if "label_only" in name else 3
        run, merge = jobs["run"], jobs["merge"]
        assert run["strategy"] == {"fail-fast": False, "matrix": {"shard": list(range(1, count + 1))}}
        assert run["concurrency"]["group"].endswith("-${{ matrix.shard }}")
        assert merge["permissions"] == {"contents": "read"}
        assert "secrets." not in str(merge)
        assert "github.token" not in str(merge)
        started = [step for step in run["steps"] if "--shard=" in step.get("run", "")]
        assert started
        assert all(f'--shard="$SHARD/{count}"' in step["run"] for step in started)
        assert all(step["env"]["SHARD"] == "${{ matrix.shard }}" for step in started)
        for other in ("report", "issue"):
            assert other not in jobs or "merge" in jobs[other]["needs"]


def test_the_job_that_merges_has_no_code_of_a_pull_request_if_the_run_has_credentials() -> None:
    files = rendered({**BLOCK, **SHARDED}, shards=2)
    refs = {name: yaml.safe_load(text)["jobs"].get("merge", {}).get("steps", [{}])[0] for name, text in files.items()}
    base = "${{ github.event_name == 'pull_request' && github.event.repository.default_branch || github.sha }}"
    assert refs["tpu_ci-on_demand.yml"]["with"]["ref"] == base
    assert refs["tpu_ci-label_only.yml"]["with"]["ref"] == base
    assert refs["tpu_ci-nightly.yml"]["with"]["ref"] == "${{ github.sha }}"


def test_a_workflow_can_have_its_own_number_of_shards() -> None:
    block = {"workflows": {"a": {"dispatch": True, "shards": 1}, "b": {"dispatch": True, "shards": 2}}}
    a, b = (yaml.safe_load(text)["jobs"] for text in rendered(block, shards=5).values())
    assert "merge" not in a
    assert b["run"]["strategy"]["matrix"]["shard"] == [1, 2]
    a, b = (yaml.safe_load(text)["jobs"] for text in rendered(block).values())
    assert (list(a), list(b)) == (["run"], ["run", "merge"])


def test_other_versions_of_actions_can_be_configured() -> None:
    text = rendered({"github": {"actions": {"actions/checkout": "v6"}}, "workflows": {"cpu": CPU}})["tpu_ci-cpu.yml"]
    assert "uses: actions/checkout@v6\n" in text


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_values_of_the_configuration_stay_text(text: str) -> None:
    block = {
        "github": {"runs_on": ["self-hosted", text], "python": text},
        "workflows": {"w": {"push": [text], "label": text, "environment": text, "revision": "r"}},
    }
    (content,) = (yaml.safe_load(text) for text in rendered(block).values())
    job = content["jobs"]["run"]
    assert content["on"]["push"]["branches"] == [text]
    assert job["runs-on"] == ["self-hosted", text]
    assert job["environment"] == text
    assert f"github.event.label.name == '{text.replace(chr(39), chr(39) * 2)}'" in job["if"]
    assert not any("pwned" in step.get("run", "") for step in job["steps"])


@given(
    st.text(st.characters(exclude_categories=["C", "Zl", "Zp"]), min_size=1, max_size=40).map(str.strip).filter(bool)
)
@settings(max_examples=30)
def test_any_label_starts_exactly_its_own_workflow(label: str) -> None:
    assume("${{" not in label and "}}" not in label)
    (text,) = rendered({"workflows": {"w": {"label": label}}}).values()
    condition = yaml.safe_load(text)["jobs"]["run"]["if"]
    for name, is_started in ((label, True), (f"{label}x", False), ("", False)):
        head = {"repo": {"full_name": "owner/name"}}
        event = {"label": {"name": name}, "pull_request": {"head": head}}
        contexts = {"github": {"event": event, "repository": "owner/name"}}
        assert github_expressions.evaluate(condition, contexts, {}) is is_started


@pytest.mark.parametrize(("result", "starts"), [("success", True), ("failure", False), ("cancelled", False)])
def test_a_revision_from_a_gate_that_failed_starts_nothing(texts: dict[str, str], result: str, starts: bool) -> None:
    contexts = {
        "github": {"event_name": "issue_comment", "event": {}, "repository": "owner/name"},
        "needs": {"gate": {"result": result, "outputs": {"revision": "a" * 40}}},
    }
    functions = {"cancelled": lambda: False, "always": lambda: True}
    jobs = yaml.safe_load(texts["tpu_ci-on_demand.yml"])["jobs"]
    for name in ("run", "report"):
        expected = starts or (name == "report" and result == "cancelled")
        assert github_expressions.evaluate(jobs[name]["if"], contexts, functions) is expected


def test_a_comment_in_a_message_of_the_gate_gives_no_commands_to_the_runner(texts: dict[str, str]) -> None:
    job = yaml.safe_load(texts["tpu_ci-on_demand.yml"])["jobs"]["gate"]
    script = next(step["run"] for step in job["steps"] if step.get("id") == "pin").splitlines()
    commands = [line for line in script if not line.startswith("#")]
    assert commands[0].startswith('echo "::stop-commands::$RANDOM')


@pytest.mark.parametrize(
    ("workflow", "message"),
    [
        ({}, "needs a trigger"),
        ({**CPU, "google": True}, "runs the code of forks"),
        ({**CPU, "secrets": {"A": "B"}}, "runs the code of forks"),
        ({**CPU, "environment": "tpu"}, "runs the code of forks"),
        ({**CPU, "secret_files": {"a": "B"}}, "runs the code of forks"),
        ({"dispatch": True, "secret_files": {"../a": "B"}}, "secret_files"),
        ({"dispatch": True, "secret_files": {"a": "B$(x)"}}, "secret_files"),
        ({"dispatch": True, "secret_files": {"a" * 101: "B"}}, "at most 100 characters"),
        ({**CPU, "label": "x"}, "another workflow"),
        ({"label": "x", "google": True}, "need `revision`"),
        ({"label": "x", "environment": "tpu"}, "need `revision`"),
        ({"comment": True}, "need `revision`"),
        ({"label": "${{ github.token }}"}, "must not contain an expression"),
        ({"push": ["a\nb"]}, "one line"),
        ({"schedule": "every day"}, "schedule"),
        ({"schedule": "0 2 * * * *"}, "schedule"),
        ({"dispatch": True, "secrets": {"GH_TOKEN": "X"}}, "sets `GH_TOKEN` itself"),
        ({"dispatch": True, "secrets": {"GITHUB_ENV": "X"}}, "sets `GITHUB_ENV` itself"),
        ({"dispatch": True, "secrets": {"A": "x }} y"}}, "secrets"),
        ({"dispatch": True, "presets": ["a b"]}, "presets"),
        ({"dispatch": True, "revision": "$"}, "path of one field"),
        ({"dispatch": True, "timeout": 10}, "timeout"),
        ({"push": ["main"], "issue": True}, "`issue` needs"),
        ({"dispatch": True, "inputs": {}}, "inputs"),
        ({"dispatch": True, "shards": 0}, "shards"),
        ({"dispatch": True, "shards": 257}, "shards"),
        ({"dispatch": True, "secrets": {"SHARD": "X"}}, "sets `SHARD` itself"),
    ],
)
def test_unsafe_and_faulty_workflows_are_refused(workflow: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as error:
        Contract.model_validate({"workflows": {"w": workflow}})
    assert message in str(error.value)


@pytest.mark.parametrize("name", ["reap", "a/b", "../a", "A", "a-b", ""])
def test_a_workflow_has_a_plain_name(name: str) -> None:
    with pytest.raises(ValidationError):
        Contract.model_validate({"workflows": {name: {"dispatch": True}}})


def test_the_name_of_a_job_has_at_most_80_characters() -> None:
    assert Contract.model_validate({"jobs": {"a" * 80: {}}}).named_jobs
    with pytest.raises(ValidationError, match="at most 80 characters"):
        Contract.model_validate({"jobs": {"a" * 81: {}}})


def test_the_reaper_never_deletes_the_resources_of_a_run_within_its_time_limit() -> None:
    block = {"workflows": {"w": {"dispatch": True, "timeout": 3600}}, "reap": {"older_than": 5999}}
    with pytest.raises(ValidationError, match="must be at least 6000"):
        Contract.model_validate(block)


def test_the_reaper_without_an_age_deletes_expired_resources() -> None:
    text = rendered({"reap": {"presets": ["nightly"]}})["tpu_ci-reap.yml"]
    assert "resources reap tpu_ci --presets=nightly\n" in text


def test_only_one_workflow_answers_comments() -> None:
    both = {name: {"comment": True, "revision": "r"} for name in ("a", "b")}
    with pytest.raises(ValidationError, match="a and b"):
        Contract.model_validate({"workflows": both})


@pytest.mark.parametrize("version", ["main", "de0fac2", "v6 # x", "v6\n", "${{ x }}"])
def test_an_action_needs_a_commit_or_a_version(version: str) -> None:
    with pytest.raises(ValidationError):
        Contract.model_validate({"github": {"actions": {"actions/checkout": version}}})


def test_files_of_secrets_need_their_directory() -> None:
    block = {"workflows": {"w": {"dispatch": True, "secret_files": {"token": "TOKEN"}}}}
    for variable in (None, "", "a b", "$(x)"):
        with pytest.raises(UsageError, match="env_key"):
            workflows.render("tpu_ci", Contract.model_validate(block), secrets_variable=variable)


def test_an_unknown_action_is_refused() -> None:
    with pytest.raises(UsageError, match="did you mean actions/checkout"):
        rendered({"github": {"actions": {"actions/chekout": "v6"}}, "workflows": {"cpu": CPU}})


def test_a_block_without_workflows_is_refused() -> None:
    with pytest.raises(UsageError, match="describes no workflow files"):
        rendered({})


def test_files_of_removed_workflows_are_removed_and_others_stay(texts: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "tpu_ci-mine.yml").write_text("name: mine\n")
    block = Contract.model_validate({"workflows": {"cpu": CPU}})
    (tmp_path / "tpu_ci-a-cpu.yml").write_text(workflows.render("tpu_ci-a", block)["tpu_ci-a-cpu.yml"])
    workflows.apply(workflows.compare(texts, tmp_path, "tpu_ci"))
    fewer = {name: text for name, text in texts.items() if "nightly" not in name}
    assert workflows.apply(workflows.compare(fewer, tmp_path, "tpu_ci")) == [f"removed {tmp_path}/tpu_ci-nightly.yml"]
    assert {file.name for file in tmp_path.iterdir()} == {*fewer, "tpu_ci-mine.yml", "tpu_ci-a-cpu.yml"}


def test_a_file_that_was_not_generated_is_never_replaced(texts: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "tpu_ci-cpu.yml").write_text("name: mine\n")
    with pytest.raises(UsageError, match="not generated for tpu_ci"):
        workflows.refuse_foreign_files(workflows.compare(texts, tmp_path, "tpu_ci"), "tpu_ci")


def test_a_symbolic_link_is_never_followed(texts: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "target").write_text(texts["tpu_ci-cpu.yml"])
    (tmp_path / "tpu_ci-cpu.yml").symlink_to(tmp_path / "target")
    with pytest.raises(UsageError, match="not generated for tpu_ci"):
        workflows.refuse_foreign_files(workflows.compare(texts, tmp_path, "tpu_ci"), "tpu_ci")


def test_the_diff_shows_changed_and_removed_files(texts: dict[str, str], tmp_path: Path) -> None:
    workflows.apply(workflows.compare(texts, tmp_path, "tpu_ci"))
    changed = {**texts, "tpu_ci-cpu.yml": texts["tpu_ci-cpu.yml"].replace("contents: read", "contents: write")}
    del changed["tpu_ci-reap.yml"]
    text = workflows.diff(workflows.compare(changed, tmp_path, "tpu_ci"))
    assert "-      contents: read\n+      contents: write\n" in text
    assert "-name: tpu_ci reap\n" in text


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"write_access": False}, "no account may start runs"),
        ({"teams": ["../x"]}, "pattern"),
        ({"teams": ["acme/a b"]}, "pattern"),
        ({"owners_file": "/etc/passwd"}, "pattern"),
        ({"owners_file": "../OWNERS"}, "pattern"),
        ({"members_token": "x}} ${{"}, "pattern"),
    ],
)
def test_a_wrong_list_of_commenters_is_refused(block: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Contract.model_validate({"commenters": block})


def test_people_with_write_access_may_comment_by_default() -> None:
    assert Contract.model_validate({}).allowed_commenters == Commenters()
    block = {"write_access": False, "teams": ["acme/performance"], "owners_file": "ci/OWNERS"}
    allowed = Contract.model_validate({"commenters": block}).allowed_commenters
    assert allowed == Commenters(write_access=False, teams=("acme/performance",), owners_file="ci/OWNERS")
