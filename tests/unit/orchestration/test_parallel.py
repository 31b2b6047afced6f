"""The tasks and processes of a region `run.Parallel` end with it, and no failure is lost."""

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from toolbox.ground.model.errors import Cancelled, CheckFailed, SeveralErrors, StepError
from toolbox.ground.model.events import StepFinished
from toolbox.ground.model.verdicts import Cause, ExitCode, Verdict
from toolbox.ground.system import cancellation, filesystem, processes
from toolbox.orchestration import env, run
from toolbox.records.runs.steps import Outcome, Step

from .conftest import Seen


def long() -> None:
    """Run programs that take a minute; one of them leaves its session."""
    run.run("echo up; (setsid sleep 60 &); sleep 60; echo finished")


def in_parallel(name: str, tasks: Mapping[str, Callable[[], object]], **options: Any) -> None:
    with run.Parallel(name, **options) as parallel:
        for task, function in tasks.items():
            parallel.task(task, function)


@pytest.fixture(autouse=True)
def _top(top: Step) -> Step:
    return top


@pytest.fixture
def fail(seen: Seen) -> Callable[[], None]:
    """Return a task that fails after `long` or another program has printed `up`."""

    def call() -> None:
        seen.wait_for("up")
        raise CheckFailed("too slow")

    return call


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if not path.name.startswith("."))


def test_each_task_has_a_numbered_directory_in_the_regions_directory(tmp_path: Path) -> None:
    with run.Parallel("deploy") as parallel:
        for number in range(3):
            parallel.task(f"node-{number}", lambda number: (env.ARTIFACT_DIR / "mine").write_text(str(number)), number)
    region = tmp_path / "000__deploy"
    assert names(region) == ["000__node-0", "001__node-1", "002__node-2", "step.json"]
    assert [(region / f"00{n}__node-{n}/mine").read_text() for n in range(3)] == ["0", "1", "2"]


def test_without_dedicated_dir_tasks_are_in_the_parent_directory(tmp_path: Path) -> None:
    with run.Parallel("deploy", dedicated_dir=False) as parallel:
        parallel.delayed(time.monotonic)
    assert names(tmp_path) == ["000__monotonic"]


def test_arguments_reach_the_function() -> None:
    seen: list[object] = []
    with run.Parallel("x") as parallel:
        parallel.delayed(lambda *args, **kwargs: seen.append((args, kwargs)), 1, "two", three=3)
        assert seen == []
    assert seen == [((1, "two"), {"three": 3})]


def test_there_are_as_many_threads_as_tasks() -> None:
    all_of_them = threading.Barrier(40, timeout=30)
    with run.Parallel("x") as parallel:
        for _ in range(40):
            parallel.delayed(all_of_them.wait)


def test_max_threads_is_respected() -> None:
    lock, running, most = threading.Lock(), set[int](), list[int]()

    def task(number: int) -> None:
        with lock:
            running.add(number)
            most.append(len(running))
        run.run(["true"], log_command=False)
        with lock:
            running.remove(number)

    with run.Parallel("x", max_threads=2) as parallel:
        for number in range(8):
            parallel.delayed(task, number)
    assert len(most) == 8
    assert max(most) <= 2


def test_an_empty_region_creates_no_directory(tmp_path: Path) -> None:
    with run.Parallel("x"):
        pass
    assert names(tmp_path) == []


def test_an_error_in_the_block_propagates_and_runs_no_task(tmp_path: Path) -> None:
    ran: list[int] = []

    def block() -> None:
        with run.Parallel("x") as parallel:
            parallel.delayed(ran.append, 1)
            raise KeyError("in the block")

    with pytest.raises(KeyError):
        block()
    assert (ran, names(tmp_path)) == ([], [])


def test_the_first_failure_cancels_the_other_tasks_and_their_processes(
    top: Step, tmp_path: Path, seen: Seen, fail: Callable[[], None]
) -> None:
    with pytest.raises(SeveralErrors, match="in `deploy`: too slow") as caught:
        in_parallel("deploy", {"long": long, "fail": fail})
    assert [str(error) for error in caught.value.errors] == ["too slow"]
    assert processes.marked(tmp_path) == []
    assert "finished" not in seen.lines
    ended, failed = tmp_path / "000__deploy/000__long", tmp_path / "000__deploy/001__fail"
    assert "cancelled (interrupted)\nanother task of `deploy` failed" in (ended / "FAILURE").read_text()
    assert (failed / "FAILURE").read_text().startswith("000__deploy/001__fail: failed (check)\ntoo slow")
    ends = {event.name: event.verdict for event in seen.of(StepFinished)}
    assert ends == {"long": Verdict.CANCELLED, "fail": Verdict.FAILED, "deploy": Verdict.FAILED}
    outcome = top.outcome()
    assert outcome is not None
    assert (outcome.verdict, outcome.cause) == (Verdict.FAILED, Cause.CHECK)


def test_the_error_contains_all_failures_and_the_verdict_of_the_first(top: Step, tmp_path: Path) -> None:
    first_failed = threading.Event()

    def fail(number: int) -> None:
        if number:
            assert first_failed.wait(30)
        first_failed.set()
        raise StepError(f"error {number}", verdict=Verdict.FAILED, cause=Cause.PRODUCT)

    with pytest.raises(SeveralErrors) as caught:
        in_parallel("x", {f"{number}": partial(fail, number) for number in range(3)}, exit_on_exception=False)
    assert {str(error) for error in caught.value.errors} == {"error 0", "error 1", "error 2"}
    assert str(caught.value).endswith("(and 2 more)")
    assert (caught.value.verdict, caught.value.cause) == (Verdict.FAILED, Cause.PRODUCT)
    assert caught.value.exit_code == ExitCode.FAILED
    assert len(list(tmp_path.glob("000__x/*/FAILURE"))) == 3
    outcome = top.outcome()
    assert outcome is not None
    assert outcome.verdict is Verdict.FAILED


def test_without_exit_on_exception_other_tasks_run_to_their_end(tmp_path: Path) -> None:
    failed = threading.Event()

    def fail() -> None:
        failed.set()
        raise CheckFailed("too slow")

    def late() -> None:
        assert failed.wait(30)
        assert run.run(["echo", "done"], capture_stdout=True).stdout == "done\n"
        (env.ARTIFACT_DIR / "done").touch()

    with pytest.raises(SeveralErrors, match="too slow"):
        in_parallel("x", {"fail": fail, "late": late}, exit_on_exception=False)
    assert (tmp_path / "000__x/001__late/done").exists()


def test_queued_tasks_do_not_start_after_a_failure(tmp_path: Path) -> None:
    ran: list[int] = []

    def fail() -> None:
        raise CheckFailed("too slow")

    with pytest.raises(SeveralErrors):
        in_parallel("x", {"fail": fail, "long": long, "append": partial(ran.append, 1)}, max_threads=1)
    assert ran == []
    assert filesystem.read_json(tmp_path / "000__x/002__append/step.json")["verdict"] == "cancelled"


def test_a_region_passes_if_all_tasks_pass(top: Step) -> None:
    with run.Parallel("x") as parallel:
        parallel.delayed(time.monotonic)
    assert top.outcome() == Outcome(Verdict.PASSED)


def test_a_foreign_exception_keeps_its_type() -> None:
    with pytest.raises(SeveralErrors, match="KeyError: 'gone'") as caught:
        in_parallel("x", {"look": partial(dict[str, int]().__getitem__, "gone")})
    assert isinstance(caught.value.errors[0], KeyError)
    assert caught.value.exit_code == ExitCode.ERROR


def test_a_cancelled_region_ends_its_tasks_and_raises(tmp_path: Path, seen: Seen) -> None:
    with cancellation.opened() as scope:

        def cancel() -> None:
            seen.wait_for("up")
            scope.cancel("the deadline")

        canceller = threading.Thread(target=cancel)
        canceller.start()
        with pytest.raises(Cancelled):
            in_parallel("x", {"long": long})
        canceller.join()
    assert processes.marked(tmp_path) == []


def test_a_failure_in_an_outer_region_ends_inner_regions(tmp_path: Path, fail: Callable[[], None]) -> None:
    with pytest.raises(SeveralErrors) as caught:
        in_parallel("outer", {"inner": partial(in_parallel, "inner", {"long": long}), "fail": fail})
    assert [str(error) for error in caught.value.errors] == ["too slow"]
    assert processes.marked(tmp_path) == []
    assert (tmp_path / "000__outer/000__inner/000__inner/000__long/FAILURE").exists()


def test_two_regions_can_follow_each_other(tmp_path: Path) -> None:
    for name in ("one", "two"):
        with run.Parallel(name) as parallel:
            parallel.delayed(time.monotonic)
    assert names(tmp_path) == ["000__one", "001__two"]


def test_a_task_that_sleeps_is_cancelled_at_once_when_another_fails(seen: Seen, fail: Callable[[], None]) -> None:
    def sleep() -> None:
        run.run("echo up")
        run.sleep(3600)

    with pytest.raises(SeveralErrors, match="too slow"):
        in_parallel("deploy", {"sleep": sleep, "fail": fail})
    verdicts = {event.name: event.verdict for event in seen.of(StepFinished)}
    assert (verdicts["sleep"], verdicts["fail"]) == (Verdict.CANCELLED, Verdict.FAILED)
