"""Notebooks are executed with real kernels, and each fault of a notebook has its own result."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tests.features.notebooks.functional import notebook_runs
from toolbox.features.notebooks.worker import execution, local_place
from toolbox.features.notebooks.worker.executed_notebook import CannotWriteError
from toolbox.features.notebooks.worker.notebook_results import Fault, NotebookRecord, TestOutcome, TestResult
from toolbox.features.notebooks.worker.notebook_settings import Limits, NotebookSettings, Runtime, Settings


@dataclass
class Bench:
    """Executes notebooks in a directory of the test."""

    root: Path
    runtime: Runtime = field(default_factory=lambda: Runtime("test", python=sys.executable))
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        for name in ("sources", "files"):
            (self.root / name).mkdir()

    def write(self, content: str | bytes, name: str = "test.ipynb") -> None:
        data = content if isinstance(content, bytes) else content.encode()
        (self.root / "sources" / name).write_bytes(data)

    def run(self, *cells: Any, metadata: Mapping[str, Any] | None = None, **settings: Any) -> TestResult:
        if cells:
            made = [new_code_cell(cell) if isinstance(cell, str) else cell for cell in cells]
            self.write(nbformat.writes(new_notebook(cells=made, metadata=metadata or {})))
        with local_place.opened(Settings(self.runtime, self.limits), None, self.root / "files") as place:
            return execution.run(
                NotebookSettings("test", "test.ipynb", **settings),
                place,
                sources=self.root / "sources",
                directory=self.root / "files",
                limits=self.limits,
                sample_seconds=0.1,
            )

    @property
    def executed(self) -> Path:
        return self.root / "files" / "executed" / "test.ipynb"

    def outputs(self) -> list[list[Any]]:
        """The outputs of each code cell of the executed notebook."""
        notebook = nbformat.read(self.executed, as_version=4)
        nbformat.validate(notebook)
        return [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]

    @property
    def samples(self) -> Path:
        return self.root / "files" / "samples" / "test.csv"

    def text(self) -> str:
        """The texts of all streams of the executed notebook."""
        return "".join(output.text for outputs in self.outputs() for output in outputs if "text" in output)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def tagged(source: str, *tags: str) -> Any:
    return new_code_cell(source, metadata={"tags": list(tags)})


def record(result: TestResult) -> NotebookRecord:
    assert result.notebook
    return result.notebook


def outcomes(result: TestResult) -> list[tuple[int, str]]:
    return [(cell.number, cell.outcome.value) for cell in record(result).cells]


def test_a_notebook_passes_with_its_parameters_and_outputs(bench: Bench) -> None:
    (bench.root / "sources" / "data.txt").write_text("from the file", encoding="utf-8")
    os.mkfifo(bench.root / "sources" / "pipe")
    result = bench.run(
        new_markdown_cell("# Title"),
        tagged("count = 1", "parameters"),
        "print(count, open('data.txt').read())",
        "'a value'",
        parameters={"count": 42},
    )
    assert (result.outcome, result.fault, result.message) == (TestOutcome.PASSED, None, "")
    assert outcomes(result) == [(1, "passed"), (0, "passed"), (2, "passed"), (3, "passed")]
    assert bench.text() == "42 from the file\n"
    assert bench.outputs()[3][0].data == {"text/plain": "'a value'"}
    assert record(result).executed == "test.ipynb"
    assert list(bench.executed.parent.iterdir()) == [bench.executed]


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (tagged("count = 1", "parameters"), "the notebook has no parameter `cuont`: did you mean count?"),
        (new_code_cell("cuont = 1"), "the notebook has no cell with the tag `parameters`: add the tag to the cell"),
    ],
)
def test_a_notebook_that_does_not_have_a_parameter_fails(bench: Bench, cell: Any, message: str) -> None:
    result = bench.run(cell, parameters={"cuont": 42})
    assert (result.outcome, result.fault) == (TestOutcome.FAILED, Fault.INVALID_NOTEBOOK)
    assert result.message.startswith(message)


def test_parameters_that_an_earlier_execution_injected_are_replaced(bench: Bench) -> None:
    result = bench.run(
        tagged("count = 2", "injected-parameters"),
        tagged("count = 1", "parameters"),
        tagged("count = 3", "injected-parameters"),
        "print(count)",
        parameters={"count": 42},
    )
    assert result.outcome is TestOutcome.PASSED
    assert bench.text() == "42\n"


def test_each_cell_has_its_time_cpu_and_memory(bench: Bench) -> None:
    source = "data = bytearray(200_000_000)\n" + notebook_runs.busy_while_sampled(bench.samples, seconds=0.5)
    cell = record(bench.run(source)).cells[0]
    assert cell.started
    assert cell.seconds
    assert cell.seconds >= 0.5
    assert cell.cpu_seconds
    assert cell.peak_memory_bytes
    assert cell.peak_memory_bytes > 200_000_000


def test_files_that_a_notebook_writes_do_not_change_the_sources(bench: Bench) -> None:
    assert bench.run("open('new.txt', 'w').close()").outcome is TestOutcome.PASSED
    assert [path.name for path in (bench.root / "sources").iterdir()] == ["test.ipynb"]


def test_an_exception_names_the_cell_and_has_a_plain_traceback(bench: Bench) -> None:
    result = bench.run("print('first')", "raise ValueError('no \\x1b[31mdata\\u202e')", "print('never')")
    assert (result.outcome, result.fault) == (TestOutcome.FAILED, Fault.CODE)
    assert result.message == "code cell 2: ValueError: no data"
    failed = record(result).failed_cell
    assert failed
    assert (failed.number, failed.exception) == (2, "ValueError: no data")
    assert failed.source.startswith("raise ValueError")
    assert "Traceback (most recent call last)" in failed.traceback
    assert failed.traceback.isascii()
    assert "\x1b" not in failed.traceback
    assert outcomes(result) == [(1, "passed"), (2, "failed"), (3, "skipped")]
    assert bench.text() == "first\n"


def test_tags_skip_cells_and_allow_exceptions(bench: Bench) -> None:
    result = bench.run(
        tagged("1 / 0", "raises-exception"),
        tagged("exit(1)", "skip"),
        tagged("exit(1)", "skip-execution"),
        tagged("exit(1)", "nbval-skip"),
        "print('end')",
    )
    assert result.outcome is TestOutcome.PASSED
    assert [outcome for _, outcome in outcomes(result)] == ["passed", "skipped", "skipped", "skipped", "passed"]
    assert bench.outputs()[0][0].ename == "ZeroDivisionError"
    assert bench.text() == "end\n"


def test_sys_exit_ends_a_notebook_and_its_status_is_judged(bench: Bench) -> None:
    result = bench.run("import sys; sys.exit()", "1 / 0")
    assert result.outcome is TestOutcome.PASSED
    assert outcomes(result) == [(1, "passed"), (2, "skipped")]
    result = bench.run("import sys; sys.exit(3)")
    assert (result.fault, result.message) == (Fault.CODE, "code cell 1: SystemExit: 3")


def test_exit_ends_a_notebook_before_the_kernel_has_ended(bench: Bench) -> None:
    result = bench.run("exit()", "1 / 0")
    assert result.outcome is TestOutcome.PASSED
    assert outcomes(result) == [(1, "passed"), (2, "skipped")]


def test_a_message_that_is_too_large_for_the_memory_of_the_worker_is_not_received(bench: Bench) -> None:
    bench.limits = Limits(output_bytes=2**20)
    result = bench.run("print('x' * 100_000_000)", "2", cell_timeout=60)
    assert (result.fault, result.message) == (
        Fault.TOO_MUCH_OUTPUT,
        "code cell 1: the kernel sent a message that is much larger than 1 MiB",
    )


@pytest.mark.parametrize("source", ["raise MemoryError", "raise OSError(12, 'Cannot allocate memory')"])
def test_exhausted_memory_is_told_apart_from_an_error_in_the_code(bench: Bench, source: str) -> None:
    assert bench.run(source).fault is Fault.OUT_OF_MEMORY


def test_a_kernel_that_exceeds_its_memory_is_out_of_memory(bench: Bench) -> None:
    bench.limits = Limits(memory_bytes=2**30)
    result = bench.run("data = bytearray(2**20)", "data = bytearray(2**31)")
    assert (result.fault, result.message) == (Fault.OUT_OF_MEMORY, "code cell 2: MemoryError")


def test_a_cell_that_never_ends_is_interrupted(bench: Bench) -> None:
    result = bench.run("import time\nprint('before')\ntime.sleep(1000)", cell_timeout=3)
    assert (result.fault, result.message) == (
        Fault.TIMEOUT,
        "code cell 1: the cell exceeded its time limit of 3 s",
    )
    failed = record(result).failed_cell
    assert failed
    assert failed.exception == "KeyboardInterrupt"
    assert "time.sleep(1000)" in failed.traceback
    assert bench.text().startswith("before\n")


def test_a_cell_that_resists_the_interrupt_is_given_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolbox.features.notebooks.worker.notebook_client.INTERRUPT_SECONDS", 0.5)
    result = bench.run("import signal\nsignal.pthread_sigmask(0, [2])\nwhile True: pass", cell_timeout=0.5)
    assert result.fault is Fault.TIMEOUT
    assert "exceeded its time limit of 0.5 s" in bench.text()


def test_the_time_limit_of_the_notebook_names_the_cell_at_which_it_ended(bench: Bench) -> None:
    result = bench.run("1", "while True: pass", timeout=3)
    assert (result.fault, result.message) == (
        Fault.TIMEOUT,
        "code cell 2: the notebook exceeded its time limit of 3 s",
    )


def test_a_full_disk_is_not_a_fault_of_the_notebook(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def copytree(*_: object, **__: object) -> None:
        raise shutil.Error([("data", "copy", "[Errno 28] No space left on device: 'data' -> 'copy'")])

    monkeypatch.setattr(shutil, "copytree", copytree)
    with pytest.raises(CannotWriteError, match="No space left on device"):
        bench.run("1")


def test_a_kernel_that_kills_itself_has_died(bench: Bench) -> None:
    source = (  # the worker has the output when it has saved it; the file contains the source as well
        "import os, pathlib, time\nwords = 'last ' + 'words'\nprint(words, flush=True)\n"
        f"while words not in pathlib.Path({str(bench.executed)!r}).read_text(): time.sleep(0.05)\n"
        "os.kill(os.getpid(), 9)"
    )
    result = bench.run(source, "2")
    assert (result.fault, result.message) == (Fault.KERNEL_DIED, "code cell 1: the kernel ended by the signal SIGKILL")
    assert bench.text().startswith("last words\n")
    assert outcomes(result) == [(1, "failed"), (2, "skipped")]


def test_a_kernel_that_is_replaced_by_another_program_has_died(bench: Bench) -> None:
    result = bench.run("import os\nos.execvp('sleep', ['sleep', '600'])", cell_timeout=60)
    assert (result.fault, result.message) == (
        Fault.KERNEL_DIED,
        "code cell 1: the kernel closed its sockets, or was replaced by another program (`os.exec`)",
    )


def test_a_kernel_that_exits_has_died(bench: Bench) -> None:
    result = bench.run("import os; os._exit(3)")
    assert result.fault is Fault.KERNEL_DIED
    assert result.message == "code cell 1: the kernel ended with status 3"


@pytest.mark.parametrize(
    "source",
    [
        "print('x' * 50_000_000)",
        "while True: print('x' * 100)",
        "import sys\nwhile True: print('x' * 9999, flush=True); print('y', file=sys.stderr, flush=True)",
        "from IPython.display import display\nwhile True: display('x')",
        "from IPython.display import display\nhandle = display('x', display_id=True)\nwhile True: handle.update('y')",
        "from IPython.display import clear_output\nwhile True: print('x' * 1000, flush=True); clear_output()",
        "from IPython.display import Image\nImage(b'\\x89PNG\\r\\n\\x1a\\n' + b'x' * 5_000_000)",
    ],
    ids=["one print", "prints", "both streams", "displays", "updates", "cleared", "image"],
)
def test_too_much_output_ends_the_notebook_and_the_first_part_is_kept(bench: Bench, source: str) -> None:
    bench.limits = Limits(output_bytes=2**20)
    result = bench.run(source, "2", cell_timeout=60)
    assert (result.fault, result.message) == (
        Fault.TOO_MUCH_OUTPUT,
        "code cell 1: the outputs of the notebook exceed the limit of 1 MiB",
    )
    assert bench.executed.stat().st_size < 1.2 * 2**20
    assert "the outputs of the notebook exceed the limit" in bench.text()


def test_streams_are_merged(bench: Bench) -> None:
    bench.run("import sys\nfor i in range(100): print(i, flush=True); print(i, file=sys.stderr, flush=True)")
    assert [(output.name, output.text.count("\n")) for output in bench.outputs()[0]] == [
        ("stdout", 100),
        ("stderr", 100),
    ]


def test_displays_are_updated_and_cleared_as_in_a_browser(bench: Bench) -> None:
    result = bench.run(
        "from IPython.display import clear_output, display\nprint('old'); clear_output(wait=True); print('new')",
        "handle = display('old', display_id=True)",
        "handle.update('new'); print('after')",
    )
    assert result.outcome is TestOutcome.PASSED
    first, second, third = bench.outputs()
    assert [output.text for output in first] == ["new\n"]
    assert second[0].data["text/plain"] == "'new'"
    assert third[0].text == "after\n"


def test_messages_of_widgets_break_nothing(bench: Bench) -> None:
    source = (
        "from comm import create_comm\n"
        "comm = create_comm(target_name='jupyter.widget', data={'state': {'_model_name': 'M', '_model_module': 'm'}})\n"
        "comm.send({'state': {'value': 1}})\ncomm.send({'method': 'custom'})\n"
        "create_comm(target_name='other').close()\n"
    )
    assert bench.run(source, "print('end')").outcome is TestOutcome.PASSED
    assert bench.text() == "end\n"


def test_a_notebook_that_asks_for_input_fails_at_once(bench: Bench) -> None:
    result = bench.run("input('name? ')")
    assert result.fault is Fault.CODE
    assert "does not support input requests" in result.message
    assert result.message.endswith("use parameters, or mark the notebook as manual.")


def test_a_manual_notebook_is_skipped_with_its_reason(bench: Bench) -> None:
    result = bench.run("1 / 0", manual="mount the dataset first")
    assert (result.outcome, result.message) == (TestOutcome.SKIPPED, "mount the dataset first")
    result = bench.run("1 / 0", metadata={"topgallant": {"manual": "log in first"}})
    assert (result.outcome, result.message) == (TestOutcome.SKIPPED, "log in first")
    assert result.notebook is None


@pytest.mark.parametrize(
    ("content", "fault", "message"),
    [
        (b"", Fault.INVALID_NOTEBOOK, "the file is empty"),
        (b"print(1)", Fault.INVALID_NOTEBOOK, "the file is not JSON"),
        (b'{"nbformat": 3, "nbformat_minor": 0, "worksheets": []}', Fault.OLD_FORMAT, "--nbformat 4`"),
    ],
)
def test_a_file_that_is_not_a_notebook_of_format_4_has_its_fault(
    bench: Bench, content: bytes, fault: Fault, message: str
) -> None:
    bench.write(content)
    result = bench.run()
    assert (result.outcome, result.fault) == (TestOutcome.FAILED, fault)
    assert message in result.message


def test_a_missing_file_and_a_path_out_of_the_sources_are_invalid(bench: Bench) -> None:
    assert bench.run().message == "the file does not exist"
    (bench.root / "sources" / "test.ipynb").symlink_to("/etc/hostname")
    assert bench.run().message == "the path of the notebook leads out of the sources of the run"


def test_the_kernel_of_the_runtime_is_used_and_not_the_one_that_the_notebook_names(bench: Bench) -> None:
    metadata = {"kernelspec": {"name": "missing", "display_name": "Missing", "language": "python"}}
    assert bench.run("1", metadata=metadata).outcome is TestOutcome.PASSED


def test_a_notebook_in_another_language_names_the_kernel_to_configure(bench: Bench) -> None:
    result = bench.run("1", metadata={"language_info": {"name": "R"}})
    assert result.fault is Fault.NO_KERNEL
    assert "written in r, but the kernel of the runtime executes python" in result.message


@pytest.mark.parametrize("runtime", [Runtime("test", kernel="missing"), Runtime("test", python="/missing/python")])
def test_a_kernel_that_is_missing_is_no_kernel(bench: Bench, runtime: Runtime) -> None:
    bench.runtime = runtime
    result = bench.run("1")
    assert (result.outcome, result.fault) == (TestOutcome.FAILED, Fault.NO_KERNEL)
    assert "missing" in result.message
    assert not bench.executed.exists()


def test_faked_metadata_of_papermill_is_replaced(bench: Bench) -> None:
    faked = {"papermill": {"exception": True, "parameters": {"count": 666}, "output_path": "/etc/passwd"}}
    cell = new_code_cell("1", metadata={"papermill": {"status": "failed", "exception": True}})
    assert bench.run(cell, metadata=faked).outcome is TestOutcome.PASSED
    notebook = json.loads(bench.executed.read_text(encoding="utf-8"))
    assert notebook["metadata"]["papermill"]["exception"] is None
    assert "/etc/passwd" not in str(notebook)
    assert notebook["cells"][0]["metadata"]["papermill"]["status"] == "completed"


def test_an_output_of_the_source_that_looks_like_an_error_is_cleared(bench: Bench) -> None:
    cell = new_code_cell("1", outputs=[nbformat.v4.new_output("error", ename="Fake", evalue="", traceback=[])])
    assert bench.run(cell).outcome is TestOutcome.PASSED
    assert [output.output_type for output in bench.outputs()[0]] == ["execute_result"]


def test_a_notebook_without_code_is_skipped(bench: Bench) -> None:
    assert bench.run(new_markdown_cell("text")).message == "the notebook has no code cell"
    result = bench.run(tagged("1", "skip"))
    assert (result.outcome, result.message) == (
        TestOutcome.SKIPPED,
        "each code cell of the notebook has a tag that skips it",
    )


def test_an_executed_notebook_is_kept_while_it_is_executed(bench: Bench) -> None:
    """The second cell reads the file until the output of the first cell is there, and each time the file is whole."""
    source = (
        "import json, pathlib, time\n"
        f"file = pathlib.Path({str(bench.executed)!r})\n"
        "while 'first output' not in str(json.loads(file.read_text())['cells'][0]['outputs']):\n"
        "    time.sleep(0.05)"
    )
    assert bench.run("print('first ' + 'output')", source, cell_timeout=60).outcome is TestOutcome.PASSED


def _restarting(bench: Bench, state: str) -> TestResult:
    source = (
        "from IPython import get_ipython\nimport time\n"
        "kernel = get_ipython().kernel\n"
        f"kernel.session.send(kernel.iopub_socket, 'status', {{'execution_state': {state!r}}}, ident=b'status')\n"
        "time.sleep(1000)"
    )
    return bench.run(source, cell_timeout=60)


@pytest.mark.parametrize("state", ["restarting", "dead"])
def test_a_kernel_that_its_server_restarts_has_died(bench: Bench, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolbox.features.notebooks.worker.notebook_client.ENDED_SECONDS", 0.0)
    result = _restarting(bench, state)
    assert (result.fault, result.message) == (
        Fault.KERNEL_DIED,
        "code cell 1: the kernel died or was restarted",
    )


def printed(source: str, text: str, *tags: str) -> Any:
    """A cell whose file says that it printed a text."""
    output = nbformat.v4.new_output("stream", name="stdout", text=text)
    return new_code_cell(source, outputs=[output], metadata={"tags": list(tags)})


def test_outputs_are_compared_where_the_tags_ask_for_it(bench: Bench) -> None:
    cells = [printed("print(1)", "another"), printed("print(2)\nprint('x')", "2\nx\n", "nbval-check-output")]
    assert bench.run(*cells).outcome is TestOutcome.PASSED
    result = bench.run(*cells, compare_outputs=True)
    assert (result.outcome, result.fault) == (TestOutcome.FAILED, Fault.OUTPUT)
    assert result.message == "code cell 1: stdout differs in line 1: expected `another`, found `1`"
    assert (result.expected, result.found) == ("another", "1")
    failed = record(result).failed_cell
    assert failed
    assert (failed.number, failed.source) == (1, "print(1)")
    assert failed.traceback.splitlines()[-2:] == ["-another", "+1"]
    assert outcomes(result) == [(1, "failed"), (2, "passed")]


def test_expressions_of_the_configuration_are_ignored_in_a_comparison(bench: Bench) -> None:
    cell = printed(
        "import os; print(f'process {os.getpid()} in {os.getcwd()} is {object()}')",
        "process 1 in /a is <object object at 0x7f>\n",
    )
    ignore = ((r"process \d+ in \S+", "process"),)
    assert bench.run(cell, compare_outputs=True, ignore=ignore).outcome is TestOutcome.PASSED
    assert bench.run(cell, compare_outputs=True).fault is Fault.OUTPUT
    result = bench.run(cell, compare_outputs=True, ignore=(("(", ""),))
    assert result.message.startswith("`(` in `ignore` is not a valid expression")


def test_a_notebook_without_outputs_has_nothing_to_compare_with(bench: Bench) -> None:
    assert bench.run("x = 1", compare_outputs=True).outcome is TestOutcome.PASSED
    result = bench.run("print(1)", compare_outputs=True)
    assert result.message.startswith("the file has no outputs to compare with")


def test_injected_parameters_do_not_shift_the_comparison(bench: Bench) -> None:
    result = bench.run(
        tagged("count = 1", "parameters"),
        printed("print(count)", "2\n"),
        printed("print(count + 1)", "4\n"),
        parameters={"count": 2},
        compare_outputs=True,
    )
    assert result.message == "code cell 3: stdout differs in line 1: expected `4`, found `3`"
    assert outcomes(result) == [(1, "passed"), (0, "passed"), (2, "passed"), (3, "failed")]
