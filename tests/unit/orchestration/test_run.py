"""`run.run` runs programs and `run.run_all` calls functions; both report failures."""

import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from toolbox.ground.model.errors import Cancelled, CheckFailed, StepError, UsageError
from toolbox.ground.model.events import StepFinished
from toolbox.ground.model.secrets import Secret
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.ground.system import cancellation
from toolbox.orchestration import run
from toolbox.records.runs.steps import Step

from .conftest import Seen, Work

HOSTILE = "\"; touch pwned; $(touch pwned2) `touch pwned3` ' \n*"


@pytest.fixture(autouse=True)
def _top(top: Step) -> Step:
    return top


def test_a_list_is_run_without_a_shell(tmp_path: Path) -> None:
    done = run.run(["printf", "%s|", HOSTILE, 7, tmp_path], capture_stdout=True, cwd=tmp_path)  # type: ignore[list-item]
    assert done.stdout == f"{HOSTILE}|7|{tmp_path}|"
    assert [path.name for path in tmp_path.iterdir()] == ["run.log"]


def test_the_output_of_a_program_is_written_to_run_log(tmp_path: Path) -> None:
    run.run("echo out; echo err >&2")
    assert set((tmp_path / "run.log").read_text().splitlines()) == {"$ echo out; echo err >&2", "out", "err"}


def test_a_failure_shows_stderr_even_if_it_is_not_captured() -> None:
    with pytest.raises(StepError, match="ended with status 3\nthe reason"):
        run.run("echo the reason >&2; exit 3")


def test_a_secret_in_env_reaches_the_program_but_no_log(tmp_path: Path) -> None:
    secret = Secret("hunter2-and-more")
    assert run.run("printf %s $TOKEN | wc --chars", env={"TOKEN": secret}, capture_stdout=True).stdout == "16\n"
    run.run("echo it is $TOKEN", env={"TOKEN": secret})
    assert "it is ***" in (tmp_path / "run.log").read_text()


@pytest.mark.parametrize("command", [[], "", ["echo", Secret("hunter2")]])
def test_an_empty_command_or_one_with_a_secret_is_refused(command: Any) -> None:
    with pytest.raises(UsageError, match=r"run\.run: the command is empty or contains a secret"):
        run.run(command)


def test_a_string_is_run_by_bash() -> None:
    assert run.run("echo a{1,2} | tr a b; [[ x == x* ]]", capture_stdout=True).stdout == "b1 b2\n"


@pytest.mark.parametrize(
    "command",
    ["false; true", "echo $no_such_variable; true", "false | cat", "x=$(false); true"],
    ids=["errexit", "nounset", "pipefail", "errexit in a substitution"],
)
def test_bash_is_strict(command: str) -> None:
    with pytest.raises(StepError, match=r"ended with status [1-9]"):
        run.run(command)


def test_a_failure_has_the_command_the_status_and_the_last_errors(tmp_path: Path) -> None:
    with pytest.raises(StepError) as caught:
        run.run("seq 1 50 >&2; exit 3", capture_stderr=True)
    assert str(caught.value).splitlines() == [
        "`seq 1 50 >&2; exit 3` ended with status 3", "47", "48", "49", "50",
    ]  # fmt: skip
    assert caught.value.directory == tmp_path


@pytest.mark.parametrize("meaning", [(Verdict.ERROR, Cause.INFRASTRUCTURE), (Verdict.FAILED, Cause.PRODUCT)])
def test_a_failure_has_the_verdict_that_the_step_defines(top: Step, meaning: tuple[Verdict, Cause]) -> None:
    top.failure = meaning
    with pytest.raises(StepError) as caught:
        run.run(["false"])
    assert (caught.value.verdict, caught.value.cause) == meaning


def test_without_check_the_status_is_returned() -> None:
    assert run.run(["bash", "-c", "exit 7"], check=False).returncode == 7
    assert run.run("kill -KILL $$", check=False).returncode == -signal.SIGKILL


def test_captured_output_is_not_shown(seen: Seen) -> None:
    done = run.run("echo out; echo err >&2", capture_stdout=True, capture_stderr=True)
    assert (done.stdout, done.stderr) == ("out\n", "err\n")
    assert seen.lines == ["$ echo out; echo err >&2"]


def test_the_command_and_its_lines_are_shown(seen: Seen) -> None:
    run.run(["printf", "one\ntwo words"])
    assert seen.lines == ["$ printf 'one\ntwo words'", "one", "two words"]


def test_without_log_command_the_command_is_not_shown(seen: Seen) -> None:
    run.run(["true"], log_command=False)
    assert seen.lines == []


def test_a_file_can_be_its_standard_input(tmp_path: Path) -> None:
    (tmp_path / "input").write_bytes(b"\x00\xff from a file")
    with (tmp_path / "input").open("rb") as stream:
        done = run.run(["wc", "-c"], stdin_file=stream, capture_stdout=True)
    assert int(done.stdout or "") == 14


def test_a_program_runs_in_cwd(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    for folder in (tmp_path / "inside", str(tmp_path / "inside")):
        assert run.run(["pwd"], cwd=folder, capture_stdout=True).stdout == f"{tmp_path / 'inside'}\n"


def test_a_program_gets_the_environment_of_this_process_and_env(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INHERITED", "1")
    done = run.run('echo "$INHERITED $GIVEN $ARTIFACT_DIR"', env={"GIVEN": HOSTILE}, capture_stdout=True)
    assert done.stdout == f"1 {HOSTILE} {tmp_path}\n"


def test_a_program_finds_the_configuration_of_the_project(work: Work, tmp_path: Path) -> None:
    work("a: 1")
    done = run.run("echo $TOPGALLANT_FROM_CONFIG_FILE", capture_stdout=True)
    assert done.stdout == f"{tmp_path / 'config.yaml'}\n"


@pytest.mark.parametrize("command", [["there-is-no-such-program", "x"], ["/"], [""]])
def test_a_program_that_cannot_be_started_is_named(command: list[str]) -> None:
    with pytest.raises(StepError, match="cannot be started"):
        run.run(command)


def test_a_missing_cwd_is_a_step_error(tmp_path: Path) -> None:
    with pytest.raises(StepError, match="missing"):
        run.run(["true"], cwd=tmp_path / "missing")


def test_secrets_are_masked_in_the_command_its_output_and_the_error(top: Step, seen: Seen) -> None:
    secret = 'it\'s a "secret"'
    top.recorder.redactor.add([secret])
    with pytest.raises(StepError) as caught:
        run.run(["bash", "-c", 'echo "got $1"; exit 3', "bash", secret])
    texts = [str(caught.value), *seen.lines]
    assert "got ***" in texts
    assert not [line for line in texts if "secret" in line]


def test_a_cancelled_scope_ends_the_program(seen: Seen) -> None:
    with cancellation.opened() as scope:
        scope.cancel("enough")
        with pytest.raises(Cancelled, match="enough"):
            run.run(["echo", "started"])
    assert "started" not in seen.lines


def test_run_all_calls_all_functions_and_raises_the_first_error() -> None:
    ran: list[int] = []

    def fail(number: int) -> None:
        ran.append(number)
        raise CheckFailed(f"error {number}")

    with pytest.raises(CheckFailed, match="error 1") as caught:
        run.run_all(lambda: fail(1), lambda: ran.append(2), lambda: fail(3), lambda: fail(4))
    assert ran == [1, 2, 3, 4]
    assert [str(error) for error in vars(caught.value)["others"]] == ["error 3", "error 4"]
    assert caught.value.__notes__ == ["and after it CheckFailed: error 3", "and after it CheckFailed: error 4"]


def test_run_all_raises_nothing_without_errors() -> None:
    run.run_all()
    run.run_all(list, dict)


def test_run_all_stops_on_a_cancellation() -> None:
    ran: list[int] = []

    def cancel() -> None:
        raise Cancelled("enough")

    with pytest.raises(Cancelled):
        run.run_all(cancel, lambda: ran.append(1))
    assert ran == []


def test_an_unset_placeholder_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--packages is SET_AT_RUNTIME"):
        run.run_toolbox("host", "capture_state", packages=["numpy", "SET_AT_RUNTIME"])
    assert list(tmp_path.iterdir()) == []


def test_show_args_returns_the_arguments_of_the_template(work: Work, tmp_path: Path) -> None:
    (tmp_path / "args.yaml.j2").write_text(
        'pre/host capture_state/post:\n  packages: ["{{ name }}"]\n  accelerators: x\n'
    )
    work("name: '1.10'")
    call = partial(run.run_toolbox_from_config, "host", "capture_state", "pre", "post", extra={"accelerators": False})
    assert call(show_args=True) == {"packages": ["1.10"], "accelerators": False}
    assert call(show_args="packages") == ["1.10"]
    with pytest.raises(UsageError, match="no argument `package`: did you mean packages"):
        call(show_args="package")


FAILING = '''
"""Fails."""
from toolbox.ground.model.errors import CheckFailed
class Failing:
  """Fails."""
  def judge(self, message: str):
    raise CheckFailed(message)
  def join(self, separator: str, *words: str):
    return separator.join(words)
  def add(self, a: int, b: int = 2):
    return a + b
'''


@pytest.fixture
def failing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work in the repository of a team with commands that have no role, one of which fails."""
    for folder in ("projects", "commands"):
        (tmp_path / folder).mkdir()
    (tmp_path / "commands/failing.py").write_text(FAILING)
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("_commands_failing", None)


@pytest.mark.usefixtures("failing")
def test_a_command_without_a_role_is_a_step_too(tmp_path: Path, seen: Seen) -> None:
    with pytest.raises(CheckFailed, match="too slow"):
        run.run_toolbox("failing", "judge", message="too slow", artifact_dir_suffix="_large")
    (end,) = seen.of(StepFinished)
    assert (end.step, end.kind, end.verdict, end.counts) == ("000__failing__judge_large", "command", "failed", True)
    assert "too slow" in (tmp_path / end.step / "FAILURE").read_text()


@pytest.mark.usefixtures("failing")
def test_a_command_without_a_role_returns_its_value(tmp_path: Path) -> None:
    result = run.run_toolbox("failing", "add", a="40")
    assert (result.value, result.directory, result.passed) == (42, tmp_path / "000__failing__add", True)


@pytest.mark.usefixtures("failing", "top")
def test_a_command_accepts_a_list_for_variadic_arguments() -> None:
    assert run.run_toolbox("failing", "join", separator="-", words=["a", 1]).value == "a-1"


@pytest.mark.usefixtures("failing")
def test_a_failure_with_check_false_does_not_count(top: Step, seen: Seen) -> None:
    result = run.run_toolbox("failing", "judge", message="too slow", check=False)
    assert isinstance(result.error, CheckFailed)
    assert (result.passed, top.outcome()) == (False, None)
    assert [event.counts for event in seen.of(StepFinished)] == [False]
    assert result.directory is not None
