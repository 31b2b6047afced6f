"""Executes the cells of a notebook with the client of papermill and nbclient.

The client adds limits for time and outputs, and notices when a kernel dies.

The client does not trust the kernel: it ignores messages that violate the protocol, and limits the size of everything.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from jupyter_core.utils import ensure_async, run_sync
from nbclient.exceptions import CellExecutionComplete, CellExecutionError, CellTimeoutError, DeadKernelError
from papermill.clientwrap import PapermillNotebookClient

from toolbox.features.notebooks.worker import failure_texts, notebook_reading
from toolbox.features.notebooks.worker.cell_outputs import (
    DROPPED,
    STREAMS,
    OutputBudget,
    StreamMerger,
    TooMuchOutputError,
)
from toolbox.features.notebooks.worker.executed_notebook import CannotWriteError
from toolbox.features.notebooks.worker.execution_place import RunningKernel
from toolbox.features.notebooks.worker.failure_texts import KernelError
from toolbox.features.notebooks.worker.kernel_connection import Connection
from toolbox.features.notebooks.worker.notebook_results import CellRecord, FailedCell, Fault, TestOutcome
from toolbox.features.notebooks.worker.time_limits import ENDED_SECONDS, INTERRUPT_SECONDS, IOPUB_SECONDS

ALIVE_SECONDS: Final = 0.2  # between two checks whether the kernel is alive
MAX_MALFORMED: Final = 1_000
_ENDING_STATES: Final = frozenset({"restarting", "autorestarting", "dead"})


class CellFailureError(Exception):
    """A cell failed, so the rest of the notebook is not executed."""

    def __init__(self, fault: Fault, message: str, error: KernelError | None = None, details: str = "") -> None:
        super().__init__(message)
        self.fault = fault
        self.error = error
        self.details = details


@dataclass(frozen=True)
class CellLimits:
    """The limits of an execution.

    Args:
        cell: the seconds for each cell.
        notebook: the seconds for the notebook.
        output_bytes: the size of all outputs of the notebook.
    """

    cell: float
    notebook: float
    output_bytes: int


class CellsClient(PapermillNotebookClient):  # type: ignore[misc]
    """Executes the cells of a notebook with a running kernel.

    Args:
        nb_man: the executed notebook.
        connection: the connection to the kernel, which is used for all cells.
        numbers: the number of each code cell, by its index in the notebook.
    """

    def __init__(
        self,
        nb_man: Any,
        kernel: RunningKernel,
        connection: Connection,
        limits: CellLimits,
        numbers: Mapping[int, int],
        merger: StreamMerger,
        **kwargs: Any,
    ) -> None:
        super().__init__(nb_man, km=kernel.manager, iopub_timeout=IOPUB_SECONDS, coalesce_streams=False, **kwargs)
        self.kc = connection.client
        self._connection = connection
        self.records: list[CellRecord] = []
        self.failed_cell: FailedCell | None = None
        self.failure: CellFailureError | None = None
        self._kernel = kernel
        self._limits = limits
        self._numbers = numbers
        self._merger = merger
        self._budget = OutputBudget(limits.output_bytes)
        self._deadline = time.monotonic() + limits.notebook
        self._stop_reason: CellFailureError | None = None
        self._error: KernelError | None = None
        self._ends_notebook = False
        self._malformed = 0
        self._has_closed_sockets = False
        self._write_error: CannotWriteError | None = None
        self._watcher: asyncio.Task[Any] | None = None
        self._outputs_task: asyncio.Task[Any] | None = None

    def execute(self, **_: Any) -> Any:
        """Execute the cells. If a cell fails, `failure` and `failed_cell` describe this.

        Raises:
            CannotWriteError: the executed notebook cannot be written.
        """
        self.reset_execution_trackers()
        self.papermill_execute_cells()
        self.set_widgets_metadata()
        return self.nb

    def papermill_execute_cells(self) -> None:
        """Execute the code cells until one of them fails, and record each executed cell."""
        for index, cell in enumerate(self.nb.cells):
            if cell.cell_type != "code":
                continue
            is_skipped = bool(notebook_reading.SKIP_TAGS & notebook_reading.tags(cell)) or not cell.source.strip()
            if self.failure or self._ends_notebook or is_skipped:
                self._record(index, TestOutcome.SKIPPED)
                continue
            self._execute_one(cell, index)

    def _execute_one(self, cell: Any, index: int) -> None:
        started = time.time()
        self._merger.start_cell()
        self.nb_man.cell_start(cell, index)
        try:
            self._execute_checked(cell, index)
        except CellFailureError as failure:
            self._fail(failure, cell, index)
        finally:
            self._merger.flush()
            self.nb_man.cell_complete(cell, cell_index=index)
        outcome = TestOutcome.FAILED if self.failure else TestOutcome.PASSED
        self._record(index, outcome, started, time.time() - started)

    def _execute_checked(self, cell: Any, index: int) -> None:
        """Execute a cell.

        Raises:
            CellFailureError: the cell failed.
        """
        self._error = None
        try:
            self.execute_cell(cell, index)
        except CellExecutionError as error:
            found = self._error or KernelError(str(error.ename), str(error.evalue), "")
            if found.name == "SystemExit" and found.value in {"", "0", "None"}:  # papermill's rule
                self._ends_notebook = True
                return
            raise CellFailureError(found.fault, found.text + found.advice, found) from None
        except CellTimeoutError:
            message = f"the kernel did not report the end of its outputs within {IOPUB_SECONDS} s"
            raise CellFailureError(Fault.TIMEOUT, message) from None
        except DeadKernelError:
            if self._write_error:
                raise self._write_error from None
            raise self._stop_reason or self._kernel_death() from None
        finally:
            run_sync(self._end_tasks)()
        if self._stop_reason:
            raise self._stop_reason

    def _fail(self, failure: CellFailureError, cell: Any, index: int) -> None:
        self.failure = failure
        self._merger.flush()
        error = failure.error or _last_error(cell)
        traceback = error.traceback if error else failure.details
        self.failed_cell = FailedCell(
            number=self._numbers[index],
            source=failure_texts.cleaned_source(cell.source),
            exception=error.text if error else "",
            traceback=failure_texts.cleaned_traceback(traceback),
        )
        if failure.fault not in {Fault.CODE, Fault.OUT_OF_MEMORY} or not error:
            self._merger.add(cell.outputs, "stderr", f"\nTopgallant ended the notebook here: {failure}\n")
        self.nb_man.cell_exception(cell, cell_index=index)

    def _record(
        self, index: int, outcome: TestOutcome, started: float | None = None, seconds: float | None = None
    ) -> None:
        cell = self.nb.cells[index]
        self.records.append(CellRecord(self._numbers[index], str(cell.get("id", "")), outcome, started, seconds))

    def _kernel_death(self) -> CellFailureError:
        """Return how the kernel ended. Wait a moment if the place does not know this yet."""
        deadline = time.monotonic() + ENDED_SECONDS
        while (ended := self._kernel.ended()) is None and time.monotonic() < deadline:
            time.sleep(0.05)
        fault = (ended.fault if ended else None) or Fault.KERNEL_DIED
        message = failure_texts.end_of_kernel(ended)
        if ended is None and self._has_closed_sockets:
            message = "the kernel closed its sockets, or was replaced by another program (`os.exec`)"
        return CellFailureError(fault, message, details=ended.stderr if ended else "")

    # The methods below override methods of nbclient, which calls them while it executes a cell.

    async def _check_raise_for_error(self, cell: Any, cell_index: int, exec_reply: dict[str, Any] | None) -> None:
        content = exec_reply["content"] if exec_reply else {}
        if isinstance(content, dict) and content.get("status") == "error":
            self._error = KernelError.from_content(content)
        self._ends_notebook = isinstance(content, dict) and _asks_to_exit(content.get("payload"))
        await super()._check_raise_for_error(cell, cell_index, exec_reply)

    def _get_timeout(self, cell: Any) -> float | None:
        if cell is None:
            return self._limits.cell
        return max(0.01, min(self._limits.cell, self._deadline - time.monotonic()))

    async def _async_handle_timeout(self, timeout: float, cell: Any = None) -> None:  # noqa: ARG002
        """Interrupt the kernel, wait until it has sent the traceback of the interrupt, and raise the failure."""
        is_cell = timeout >= self._limits.cell
        limit, subject = (self._limits.cell, "the cell") if is_cell else (self._limits.notebook, "the notebook")
        failure = CellFailureError(Fault.TIMEOUT, f"{subject} exceeded its time limit of {limit:g} s")
        self._stop_reason = self._stop_reason or failure
        with contextlib.suppress(Exception):
            assert self.km is not None
            await asyncio.wait_for(ensure_async(self.km.interrupt_kernel()), INTERRUPT_SECONDS)
        if self._outputs_task:
            await asyncio.wait({self._outputs_task}, timeout=INTERRUPT_SECONDS)
        raise self._stop_reason

    async def _async_poll_kernel_alive(self) -> None:
        """Cancel the execution of the cell when the kernel has ended. Save the notebook when a save is due."""
        self._watcher = asyncio.current_task()
        while await ensure_async(self.kc.is_alive()) and self._kernel.ended() is None:
            await asyncio.sleep(ALIVE_SECONDS)
            try:
                self.nb_man.save_pending()
            except CannotWriteError as error:
                self._stop_writing(error)
                return
            if await self._connection.is_closed():  # by the worker, or by the kernel
                if await self._connection.is_accepted():
                    limit = _mebibytes(self._limits.output_bytes)
                    message = f"the kernel sent a message that is much larger than {limit}"
                    self._give_up(CellFailureError(Fault.TOO_MUCH_OUTPUT, message))
                    return
                self._has_closed_sockets = True
                break
        if self._outputs_task:  # the last outputs may be on their way
            await asyncio.wait({self._outputs_task}, timeout=ALIVE_SECONDS)
        self._give_up(None)

    async def _async_poll_output_msg(self, parent_msg_id: str, cell: Any, cell_index: int) -> None:
        """Process the messages of the kernel until it is idle."""
        self._outputs_task = asyncio.current_task()
        while True:
            await asyncio.sleep(0)  # a kernel that floods the worker must not stop the other tasks
            message = await self._next_message()
            if message is None:
                continue
            if _says_end(message):
                self._give_up(None)
                return
            try:
                self._process(message, parent_msg_id, cell, cell_index)
            except CellExecutionComplete:
                return
            except CannotWriteError as error:
                self._stop_writing(error)
                return
            except TooMuchOutputError as excess:
                limit = _mebibytes(self._limits.output_bytes)
                message_text = str(excess) or f"the outputs of the notebook exceed the limit of {limit}"
                self._give_up(CellFailureError(Fault.TOO_MUCH_OUTPUT, message_text))
                return

    async def _next_message(self) -> dict[str, Any] | None:
        """Return the next message of the kernel; None if it violates the protocol."""
        try:
            message = await ensure_async(self.kc.iopub_channel.get_msg(timeout=None))
            parent, content = message["parent_header"], message["content"]
            if isinstance(parent, dict) and isinstance(content, dict) and isinstance(message["msg_type"], str):
                return dict(message)
        except (ValueError, KeyError, TypeError, RecursionError, AttributeError) as error:
            self.log.warning("a message of the kernel cannot be decoded: %s", failure_texts.one_line(repr(error), 200))
        self._count_malformed()
        return None

    def _process(self, message: dict[str, Any], parent_msg_id: str, cell: Any, cell_index: int) -> None:
        is_of_cell = message["parent_header"].get("msg_id") == parent_msg_id
        try:
            excess = self._charged(message)
            if is_of_cell and not (excess and message["msg_type"] != "stream"):
                self.process_message(message, cell, cell_index)
        except (CellExecutionComplete, CannotWriteError):
            raise
        except Exception as error:  # noqa: BLE001 - a kernel can send anything
            self.log.warning("a message of the kernel is invalid: %s", failure_texts.one_line(repr(error), 200))
            self._count_malformed()
            return
        if excess:
            raise excess

    def _charged(self, message: dict[str, Any]) -> TooMuchOutputError | None:
        if message["msg_type"] in {"status", "execute_input"}:
            return None
        if notebook_reading.is_nested_deeply(message["content"]):
            raise ValueError("the content is nested too deeply")
        try:
            self._budget.charge(message)
        except TooMuchOutputError as excess:
            return excess
        return TooMuchOutputError(message[DROPPED]) if DROPPED in message else None

    def _count_malformed(self) -> None:
        self._malformed += 1
        if self._malformed == MAX_MALFORMED:
            message = f"the kernel sent {MAX_MALFORMED} messages that violate the protocol"
            self._give_up(CellFailureError(Fault.KERNEL_DIED, message))

    def output(self, outs: list[Any], msg: dict[str, Any], display_id: str | None, cell_index: int) -> Any:
        """Add an output to the cell. Texts of the same stream are merged."""
        content = msg["content"]
        is_hooked = self.output_hook_stack[msg["parent_header"].get("msg_id")]
        if msg["msg_type"] != "stream" or is_hooked or self.clear_before_next_output:
            if self.clear_before_next_output:
                self._merger.start_cell()
            return super().output(outs, msg, display_id, cell_index)
        if content["name"] not in STREAMS or not isinstance(content["text"], str):
            raise ValueError("a stream has a wrong name or text")
        self._merger.add(outs, content["name"], content["text"])
        return None

    def clear_output(self, outs: list[Any], msg: dict[str, Any], cell_index: int) -> None:
        """Clear the outputs of the cell."""
        self._merger.flush()
        super().clear_output(outs, msg, cell_index)
        if not outs:
            self._merger.start_cell()

    def _give_up(self, reason: CellFailureError | None) -> None:
        """End the execution of the cell. None as the reason means that the kernel has ended."""
        self._stop_reason = self._stop_reason or reason
        if self.task_poll_for_reply:
            self.task_poll_for_reply.cancel()

    def _stop_writing(self, error: CannotWriteError) -> None:
        """End the execution of the cell, because the executed notebook cannot be written."""
        self._write_error = error
        self._give_up(None)

    async def _end_tasks(self) -> None:
        tasks = [task for task in (self._watcher, self._outputs_task) if task and not task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _says_end(message: dict[str, Any]) -> bool:
    """Return whether a message says that the kernel ended. A Jupyter server sends it before it restarts the kernel."""
    return message["msg_type"] == "status" and message["content"].get("execution_state") in _ENDING_STATES


def _asks_to_exit(payload: Any) -> bool:
    """Return whether a cell called `exit()` of IPython. The kernel then ends a moment later."""
    return isinstance(payload, list) and any(
        isinstance(item, dict) and item.get("source") == "ask_exit" for item in payload
    )


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:.3g} MiB"


def _last_error(cell: Any) -> KernelError | None:
    errors = [output for output in cell.outputs if output.get("output_type") == "error"]
    return KernelError.from_content(errors[-1]) if errors else None
