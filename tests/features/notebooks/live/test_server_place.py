"""Tests of kernels and checks on a Jupyter server of a real hub."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.features.notebooks.servers.jupyterhub import Hub
from toolbox.features.notebooks.worker import execution, server_place, server_rest
from toolbox.features.notebooks.worker.execution_place import PlaceError
from toolbox.features.notebooks.worker.notebook_results import Fault, TestOutcome, TestResult
from toolbox.features.notebooks.worker.notebook_settings import Limits, NotebookSettings, Runtime, Settings
from toolbox.features.notebooks.worker.server_place import ServerPlace
from toolbox.features.notebooks.worker.server_variables import TOKEN, URL

pytestmark = pytest.mark.live
SERVER = "notebooks"
LIMITS = Limits(output_bytes=20 << 20)
Run = Callable[..., TestResult]


def wait_for(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"{what} was expected within 60 s"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def hub(shared_hub: Hub) -> Iterator[Hub]:
    """Yield the hub with a server that the tests of this module share."""
    shared_hub.start_server(SERVER, profile="small")
    wait_for(lambda: shared_hub.servers()[SERVER]["ready"], "the server")
    yield shared_hub
    shared_hub.clear()


def variables(hub: Hub) -> dict[str, str]:
    return {URL: f"{hub.url}/user/{hub.user}/{SERVER}", TOKEN: hub.token}


def ask(hub: Hub, path: str) -> Any:
    """Ask the Jupyter server, for example for its kernels."""
    headers = {"Authorization": f"token {hub.token}"}
    answer = httpx.get(f"{variables(hub)[URL]}/api/{path}", headers=headers, timeout=60)
    answer.raise_for_status()
    return answer.json()


def post(hub: Hub, path: str) -> None:
    """Send a request to the Jupyter server, for example to restart a kernel."""
    headers = {"Authorization": f"token {hub.token}"}
    httpx.post(f"{variables(hub)[URL]}/api/{path}", headers=headers, timeout=60).raise_for_status()


@pytest.fixture
def place(hub: Hub) -> Iterator[ServerPlace]:
    settings = Settings(Runtime("stable", kernel="paint-stable"), LIMITS)
    with server_place.opened(settings, variables(hub)) as found:
        yield found
    hub.front.clear()
    assert ask(hub, "kernels") == []
    assert [model["name"] for model in ask(hub, "contents")["content"] if "topgallant" in model["name"]] == []


@pytest.fixture
def run(place: ServerPlace, tmp_path: Path) -> Run:
    """Return a function that executes a notebook with these cells."""

    def execute(*cells: str, **fields: Any) -> TestResult:
        sources, directory = tmp_path / "sources", tmp_path / "files"
        for folder in (sources, directory):
            folder.mkdir(exist_ok=True)
        models: list[dict[str, Any]] = [
            {"cell_type": "code", "source": cell, "metadata": {}, "outputs": [], "execution_count": None, "id": f"c{n}"}
            for n, cell in enumerate(cells)
        ]
        notebook = {"cells": models, "metadata": {"kernelspec": {"name": "x", "display_name": "x"}}}
        (sources / "it.ipynb").write_text(json.dumps({**notebook, "nbformat": 4, "nbformat_minor": 5}))
        settings = NotebookSettings("it", "it.ipynb", **fields)
        return execution.run(settings, place, sources=sources, directory=directory, limits=LIMITS, sample_seconds=0.1)

    return execute


def test_a_notebook_runs_with_the_packages_of_its_kernel(run: Run) -> None:
    result = run("import paint", "assert paint.__version__ == '1.0'", "print(paint.__version__)")
    assert (result.outcome, result.message) == (TestOutcome.PASSED, "")
    assert result.notebook is not None
    assert len(result.notebook.cells) == 3


def test_a_notebook_reads_the_files_beside_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "sources/data/deep").mkdir(parents=True)
    (tmp_path / "sources/data/deep/é b.txt").write_text("blue")
    (tmp_path / "sources/large").write_bytes(b"x" * (9 << 20))
    code = "import os; assert open('data/deep/é b.txt').read() == 'blue'; assert os.path.getsize('large') == 9 << 20"
    assert run(code).outcome is TestOutcome.PASSED


def test_an_exception_fails_the_notebook(run: Run) -> None:
    result = run("1 / 0")
    assert (result.outcome, result.fault) == (TestOutcome.FAILED, Fault.CODE)
    assert "ZeroDivisionError" in result.message


def test_the_death_of_a_kernel_is_noticed(run: Run) -> None:
    result = run("import os; os._exit(3)")
    assert (result.outcome, result.fault) == (TestOutcome.FAILED, Fault.KERNEL_DIED)
    assert "the kernel died" in result.message


def test_a_cell_that_never_ends_is_interrupted(run: Run) -> None:
    result = run("while True: pass", cell_timeout=1.0)
    assert (result.outcome, result.fault) == (TestOutcome.FAILED, Fault.TIMEOUT)


def test_a_cell_survives_a_broken_websocket(run: Run, hub: Hub, tmp_path: Path) -> None:
    begun, resumed, executed = tmp_path / "begun", tmp_path / "resumed", tmp_path / "files/executed/it.ipynb"
    lines = "\n".join(f"line {number}" for number in range(60))
    # The connection breaks while the cell prints nothing: a message on its way would be lost.
    code = f"""
import pathlib, time
for n in range(60):
    print('line', n, flush=True)
    if n == 30:
        while 'line' + ' 30' not in pathlib.Path('{executed}').read_text():
            time.sleep(0.05)
        pathlib.Path('{begun}').touch()
        while not pathlib.Path('{resumed}').exists():
            time.sleep(0.05)
"""

    def connections() -> int:
        return sum(number for request, number in hub.front.requests.items() if request.endswith("/channels"))

    def drop() -> int:
        wait_for(begun.exists, "the beginning of the cell")
        before = connections()
        dropped = hub.front.drop("/channels")
        wait_for(lambda: connections() > before, "another connection")
        time.sleep(0.5)  # for the server to close the first connection
        resumed.touch()
        return dropped

    with ThreadPoolExecutor() as threads:
        dropped = threads.submit(drop)
        result = run(code, "print('next')")
    assert dropped.result() >= 1
    assert (result.outcome, result.message) == (TestOutcome.PASSED, "")
    outputs = json.loads(executed.read_text())["cells"][0]["outputs"]
    assert "".join(outputs[0]["text"]).strip() == lines


def test_a_missing_kernel_is_reported_with_the_existing_ones(hub: Hub) -> None:
    settings = Settings(Runtime("none", kernel="paint-old"), LIMITS)
    with pytest.raises(PlaceError) as caught, server_place.opened(settings, variables(hub)):
        pass
    assert caught.value.fault is Fault.NO_KERNEL
    begin, _, names = str(caught.value).partition("; its kernels are: ")
    assert begin == "the Jupyter server has no kernel paint-old"
    # The hub is shared: other tests may have added kernels.
    assert {"paint-next", "paint-stable"} <= set(names.split(", "))


def test_a_server_that_does_not_exist_is_reported(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_rest, "WAIT_SECONDS", 1.0)
    gone = {**variables(hub), URL: f"{hub.url}/user/{hub.user}/gone"}
    with pytest.raises(PlaceError) as caught, server_place.opened(Settings(Runtime("x"), LIMITS), gone):
        pass
    assert caught.value.fault is Fault.SERVER
    assert hub.token not in str(caught.value)


def test_shell_checks_run_with_their_variables(place: ServerPlace) -> None:
    ended = place.shell('echo "$A"; echo err >&2; pwd; exit 3', {"A": "é b"}, timeout=30)
    assert (ended.status, ended.fault, ended.stderr) == (3, None, "err\n")
    assert ended.stdout.startswith("é b\n/")


def test_python_checks_run_with_the_python_of_the_kernel(place: ServerPlace) -> None:
    ended = place.python("import paint, sys; print(paint.__version__); sys.exit(2)", timeout=30)
    assert (ended.status, ended.stdout, ended.stderr) == (2, "1.0\n", "")


def test_large_outputs_of_checks_arrive_completely(place: ServerPlace) -> None:
    ended = place.python("import sys; sys.stdout.write('0123456789' * 500_000); sys.stderr.write('e')", timeout=60)
    assert ended.fault is None
    assert ended.stdout == "0123456789" * 500_000
    assert ended.stderr == "e"


def test_a_check_that_never_ends_is_killed(place: ServerPlace) -> None:
    ended = place.shell("echo begun; sleep 600 & wait", {}, timeout=3.0)
    assert (ended.fault, ended.stdout) == (Fault.TIMEOUT, "begun\n")
    assert "3 s" in ended.message


def test_a_check_with_too_much_output_is_killed(place: ServerPlace) -> None:
    ended = place.shell("yes", {}, timeout=60)
    assert ended.fault is Fault.TOO_MUCH_OUTPUT
    assert len(ended.stdout) <= LIMITS.output_bytes + 1


def test_files_of_a_notebook_are_fetched(place: ServerPlace, tmp_path: Path) -> None:
    (tmp_path / "same").write_text("same")
    (tmp_path / "changed").write_text("before")
    with place.kernel(tmp_path) as kernel:
        client = kernel.connect()
        code = "import os; os.makedirs('a/b'); open('a/b/new', 'w').write('n'); open('changed', 'w').write('after')"
        client.execute(code)
        wait_for(lambda: client.shell_channel.take(1)["msg_type"] == "execute_reply", "the reply")
    assert (tmp_path / "a/b/new").read_text() == "n"
    assert (tmp_path / "changed").read_text() == "after"
    assert (tmp_path / "same").read_text() == "same"


def test_a_notebook_may_remove_its_directory(run: Run) -> None:
    result = run("import os, shutil; shutil.rmtree(os.getcwd())")
    assert (result.outcome, result.message) == (TestOutcome.PASSED, "")


def test_a_server_that_cannot_list_files_is_an_error_of_the_server(run: Run, hub: Hub) -> None:
    hub.front.fail("GET .*/api/contents", 500, times=1)
    result = run("1")
    assert (result.outcome, result.fault) == (TestOutcome.ERROR, Fault.SERVER)
    assert "cannot list" in result.message


def test_samples_are_taken_while_a_notebook_runs(run: Run, tmp_path: Path) -> None:
    samples = str(tmp_path / "files/samples/it.csv")
    busy = f"while not os.path.exists({samples!r}) or open({samples!r}).read().count('\\n') < 7: pass"
    result = run("import os", busy)  # the sampler is a kernel, which starts late
    assert result.notebook is not None
    rows = (tmp_path / "files/samples" / result.notebook.samples).read_text().splitlines()
    assert rows[0].startswith("time,cpu_percent,memory_bytes")
    assert len(rows) > 5
    assert any(float(row.split(",")[1]) > 1 for row in rows[2:])  # the first sample has no CPU use


def test_outputs_that_the_server_drops_are_too_much_output(run: Run) -> None:
    result = run("print('x' * 4_000_000)", "print('next')")  # the limit is 3 MB within 3 seconds
    assert (result.outcome, result.fault) == (TestOutcome.FAILED, Fault.TOO_MUCH_OUTPUT)
    assert "code cell 1: the Jupyter server dropped outputs" in result.message
    assert "`iopub_data_rate_limit`" in result.message


def test_a_notebook_may_print_the_warning_of_the_server(run: Run) -> None:
    result = run("import sys; print('IOPub data rate exceeded.', file=sys.stderr)")
    assert (result.outcome, result.message) == (TestOutcome.PASSED, "")


def test_a_kernel_that_is_restarted_during_a_cell_has_died(run: Run, hub: Hub, tmp_path: Path) -> None:
    begun = tmp_path / "begun"

    def restart() -> None:
        wait_for(begun.exists, "the beginning of the cell")
        (kernel,) = [model["kernel"]["id"] for model in ask(hub, "sessions") if model["name"] == "kernel"]
        post(hub, f"kernels/{kernel}/restart")

    with ThreadPoolExecutor() as threads:
        restarted = threads.submit(restart)
        result = run(f"import pathlib, time; pathlib.Path('{begun}').touch()\ntime.sleep(1000)", cell_timeout=600)
    restarted.result()
    assert (result.outcome, result.fault) == (TestOutcome.FAILED, Fault.KERNEL_DIED)
