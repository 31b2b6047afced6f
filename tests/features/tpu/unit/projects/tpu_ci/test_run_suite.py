"""The workload fetches one commit, makes an environment, runs the commands, and reports which of these steps failed."""

from __future__ import annotations

import json
import os
import runpy
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[6] / "projects/tpu_ci/workload/run_suite.py"
NO_REPOSITORY = 75
IDENTITY = ["-c", "user.name=a", "-c", "user.email=a@b.invalid"]
Run = Callable[..., subprocess.CompletedProcess[str]]


def git(directory: Path, *arguments: str) -> str:
    """Run git in a repository, and return its output."""
    command = ["git", "-C", str(directory), *IDENTITY, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with two commits. The first commit has the text `old` in a file."""
    directory = tmp_path / "repository"
    directory.mkdir()
    git(directory, "init", "-q", "-b", "main")
    for text in ("old", "new"):
        (directory / "file").write_text(text)
        git(directory, "add", "-A")
        git(directory, "commit", "-q", "-m", text)
    return directory


@pytest.fixture
def run(tmp_path: Path, repository: Path) -> Run:
    """Return a function that runs the workload: the arguments are settings, or environment variables in `env`."""
    attempt = tmp_path / "attempt"
    attempt.mkdir()

    def call(env: dict[str, str] | None = None, **settings: object) -> subprocess.CompletedProcess[str]:
        content = {
            "repository": str(repository),
            "revision": "main",
            "commit": git(repository, "rev-parse", "main"),
            "python": sys.executable,
            "timeout": 60,
            "commands": ["true"],
            **settings,
        }
        (tmp_path / "settings.json").write_text(json.dumps(content))
        command = [sys.executable, str(SCRIPT), str(tmp_path / "settings.json")]
        variables = {**os.environ, **(env or {})}
        return subprocess.run(command, cwd=attempt, env=variables, check=False, capture_output=True, text=True)

    return call


def test_the_commands_run_in_a_checkout_of_the_commit(run: Run, repository: Path, tmp_path: Path) -> None:
    old = git(repository, "rev-parse", "main~1")
    ended = run(commit=old, commands=['cat file >"$RESULTS/content"; git rev-list HEAD | wc -l; echo "$COMMIT"'])
    assert (ended.returncode, (tmp_path / "attempt/results/content").read_text()) == (0, "old")
    assert ended.stdout.splitlines()[0] == f"the commit is {old} (main) of {repository}"
    assert ended.stdout.splitlines()[-2:] == ["1", old]


def test_only_the_results_are_left(run: Run, tmp_path: Path) -> None:
    run()
    assert [path.name for path in (tmp_path / "attempt").iterdir()] == ["results"]


def test_all_commands_run_and_the_first_failure_is_the_exit_status(run: Run) -> None:
    ended = run(commands=["exit 3", ["sh", "-c", "echo second; exit 4"], "echo why >&2; false"])
    assert (ended.returncode, "second" in ended.stdout, ended.stderr) == (3, True, "why\n")
    assert [line for line in ended.stdout.splitlines() if line.startswith("command ")] == [
        "command 1 of 3 ended with status 3",
        "command 2 of 3 ended with status 4",
        "command 3 of 3 ended with status 1",
    ]


def test_no_command_can_end_with_the_status_of_a_failed_fetch(run: Run) -> None:
    assert run(commands=[f"exit {NO_REPOSITORY}"]).returncode == 1


def test_a_command_that_a_signal_ended_has_failed(run: Run) -> None:
    assert run(commands=["kill -KILL $$"]).returncode == 137


def test_a_missing_program_has_failed(run: Run) -> None:
    ended = run(commands=[["no-such-program"]])
    assert (ended.returncode, ended.stderr.splitlines()[0]) == (127, "the program `no-such-program` is not installed")


def test_the_commands_use_the_virtual_environment(run: Run) -> None:
    ended = run(
        venv=True, install=["python3 -c 'import sys; assert sys.prefix != sys.base_prefix'"], commands=["which pip"]
    )
    assert (ended.returncode, ended.stdout.splitlines()[-1].endswith("/attempt/work/venv/bin/pip")) == (0, True)


def test_a_failed_installation_runs_no_command(run: Run) -> None:
    ended = run(install=["exit 9"], commands=["echo tested"])
    assert (ended.returncode, "tested" in ended.stdout) == (3, False)
    assert ended.stderr == "the environment cannot be made: a command of `install` ended with status 9\n"


def test_caches_are_kept_in_the_given_directory(run: Run, tmp_path: Path) -> None:
    ended = run(cache=str(tmp_path / "disk"), commands=['touch "$HF_HOME/weights"; echo "$PIP_CACHE_DIR"'])
    assert ended.stdout.splitlines()[-1] == str(tmp_path / "disk/pip")
    assert (tmp_path / "disk/huggingface/weights").exists()


def test_the_token_is_not_given_to_the_commands(run: Run) -> None:
    ended = run(env={"REPOSITORY_TOKEN": "hunter2"}, commands=["env; echo none"])
    assert (ended.stdout.splitlines()[-1], "hunter2" in ended.stdout, "TOKEN" in ended.stdout) == ("none", False, False)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_the_commands_cannot_read_the_token_from_the_process_that_starts_them(run: Run) -> None:
    look = "cat /proc/$PPID/environ /proc/$PPID/cmdline | tr '\\0' '\\n'; ls -l /proc/$PPID/fd; echo none"
    ended = run(env={"REPOSITORY_TOKEN": "hunter2"}, commands=[look])
    assert ended.stdout.splitlines()[-1] == "none", ended.stderr
    assert "hunter2" not in ended.stdout
    assert "PATH=" in ended.stdout


def test_git_gets_the_token(run: Run, tmp_path: Path) -> None:
    (tmp_path / "git").write_text('#!/bin/sh\ntest "$1" = -c || exit 1\necho "token: $REPOSITORY_TOKEN"\n')
    (tmp_path / "git").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    ended = run(env={"REPOSITORY_TOKEN": "hunter2", "PATH": path}, commands=["echo none"])
    assert "token: hunter2" in ended.stdout


@pytest.mark.parametrize(("host", "answer"), [("h.example", "hunter2"), ("other.example", "")])
def test_only_the_host_of_the_repository_gets_the_token(
    monkeypatch: pytest.MonkeyPatch, host: str, answer: str
) -> None:
    monkeypatch.setenv("REPOSITORY_TOKEN", "hunter2")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    options = runpy.run_path(str(SCRIPT))["credentials"]("https://h.example/a/b.git", "hunter2")
    assert "hunter2" not in " ".join(options)
    ended = subprocess.run(
        ["git", *options, "credential", "fill"],
        input=f"protocol=https\nhost={host}\n\n",
        env={**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "true"},
        check=False,
        capture_output=True,
        text=True,
    )
    passwords = [line.partition("=")[2] for line in ended.stdout.splitlines() if line.startswith("password=")]
    assert "".join(passwords) == answer


@pytest.mark.parametrize("token", ["", "null"])
def test_a_token_that_is_not_configured_is_not_used(monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    monkeypatch.setenv("REPOSITORY_TOKEN", token)
    assert runpy.run_path(str(SCRIPT))["take_token"]() == ""


def test_a_hook_and_the_settings_of_the_repository_are_not_executed(run: Run, repository: Path, tmp_path: Path) -> None:
    hook = repository / ".git/hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/pwned\n")
    hook.chmod(0o755)
    assert run().returncode == 0
    assert not (tmp_path / "pwned").exists()


def test_a_repository_whose_server_never_answers_cannot_be_fetched(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ended = run(repository=f"https://127.0.0.1:{server.getsockname()[1]}/a", timeout=0.5)
    assert ended.returncode == NO_REPOSITORY
    assert ended.stderr.splitlines()[-1] == "the repository was not fetched within 0.5 s (`repository.timeout`)"


def test_a_commit_that_the_server_does_not_have_is_named(run: Run) -> None:
    ended = run(commit="1" * 40)
    assert ended.returncode == NO_REPOSITORY
    assert "fetching all branches" in ended.stdout
    assert ended.stderr.splitlines()[-1].startswith("`git checkout` ended with status 128: fatal: ")


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"repository": "--upload-pack=touch pwned"}, "repository"),
        ({"repository": "ext::sh -c touch% pwned"}, "repository"),
        ({"repository": "relative"}, "repository"),
        ({"repository": None}, "repository"),
        ({"commit": "main"}, "commit"),
        ({"commit": "--detach"}, "commit"),
        ({"commit": None}, "commit"),
        ({"commands": []}, "commands"),
        ({"commands": "true"}, "commands"),
        ({"commands": [""]}, "commands"),
        ({"commands": [[]]}, "commands"),
        ({"install": [1]}, "install"),
        ({"python": "a\nb"}, "python"),
        ({"timeout": 0}, "timeout"),
    ],
)
def test_wrong_settings_start_nothing(run: Run, tmp_path: Path, settings: dict[str, object], name: str) -> None:
    ended = run(**settings)
    assert (ended.returncode, ended.stderr.startswith(f"the setting `{name}` must")) == (2, True)
    assert list((tmp_path / "attempt").iterdir()) == []
