"""Runs the steps of a load one after another, and writes their figures to files after each step."""

from __future__ import annotations

import asyncio
import gc
import resource
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from . import load_generator, task_ends
from .answer_format import Answer, Case, InvalidRequestError, Limits, SettingsError
from .key_mask import KeyMask
from .load_files import LoadCsvWriter, LoadJsonWriter
from .load_generator import LoadClient, Sample, Step
from .load_settings import LoadSettings
from .load_summary import Figures, Summary
from .worker_results import LOAD_SAMPLES

_SECONDS_BETWEEN_LINES: Final = 10.0
# The connections break a moment before the end of the server is known.
_SECONDS_UNTIL_END: Final = 0.3
_OTHER_FILES: Final = 100  # that the worker has open besides its connections


class LoadRun:
    """The steps of a load on a server.

    Args:
        clients: the clients by the protocol of a case.
        directory: where the files are written.
        mask: removes the API key.
        say: prints a line.
        server_end: has a result when the server has ended. The load then ends at once.
    """

    def __init__(
        self,
        clients: Mapping[str, LoadClient],
        limits: Limits,
        *,
        directory: Path,
        mask: KeyMask,
        say: Callable[[str], None],
        server_end: asyncio.Future[str] | None = None,
    ) -> None:
        self._client = _Clients(clients)
        self._limits = limits
        self._directory = directory
        self._mask = mask
        self._say = say
        self._server_end = server_end or asyncio.get_running_loop().create_future()
        self._has_process = server_end is not None
        self.steps_ended = 0

    async def run(self, load: LoadSettings, cases: Sequence[Case]) -> None:
        """Run the steps, until the server ends. Raise SettingsError if a request is invalid."""
        steps = _within_file_limit(load.steps)
        results = LoadJsonWriter(self._directory, load.objectives)
        samples = LoadCsvWriter(self._directory, len(steps))
        gc.collect()
        gc.freeze()  # a full garbage collection would visit all imported modules, and delay the requests meanwhile
        try:
            for step in steps:
                samples.begin(step)
                summary = Summary(step, load.objectives)
                if not await self._run_step(step, cases, _Recorder(summary, samples, self._mask)):
                    return
                samples.flush()
                figures = summary.figures()
                results.add(step, figures)
                self.steps_ended += 1
                self._say_end(step, figures, samples.left_out)
        finally:
            gc.unfreeze()
            samples.close()

    async def _run_step(self, step: Step, cases: Sequence[Case], recorder: _Recorder) -> bool:
        """Run a step. Return false if the server has ended."""
        summary = recorder.summary
        running = asyncio.ensure_future(load_generator.run(self._client, cases, step, self._limits, recorder=recorder))
        progress = asyncio.ensure_future(self._say_progress(summary))
        try:
            await asyncio.wait({running, self._server_end}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
                if summary.all_errors and self._has_process:
                    await asyncio.wait({self._server_end}, timeout=_SECONDS_UNTIL_END)
        except InvalidRequestError as error:
            raise SettingsError(f"a request is invalid: {error}") from error
        finally:
            await task_ends.ended(progress)
            await task_ends.ended(running)
        if self._server_end.done():
            self._say(f"step {step.name}: not complete, because {self._server_end.result()}")
            return False
        return True

    async def _say_progress(self, summary: Summary) -> None:
        step = summary.step
        loop = asyncio.get_running_loop()
        begin = loop.time()
        warm_up = f", including a warm-up of {step.warm_up_seconds:g} s" if step.warm_up_seconds else ""
        self._say(f"step {step.name}: begins, takes {step.seconds:g} s{warm_up}")
        while True:
            await asyncio.sleep(_SECONDS_BETWEEN_LINES)
            time = f"after {loop.time() - begin:.0f} s"
            self._say(f"step {step.name}: {time}, {summary.all_requests} answers, {summary.all_errors} of them errors")

    def _say_end(self, step: Step, figures: Figures, left_out: int) -> None:
        times = [("first token", figures.first_token), ("end to end", figures.end_to_end)]
        shown = "".join(f", {name} p50 {_shown(each.percentiles[50])}" for name, each in times)
        refused = f", {figures.refused} refused" if figures.refused else ""
        self._say(f"step {step.name}: {figures.requests} requests, {figures.errors} errors{refused}{shown}")
        for message, number in list(figures.error_messages.items())[:3]:
            self._say(f"step {step.name}: {number} times: {message}")
        if left_out:
            self._say(f"step {step.name}: {LOAD_SAMPLES} has no room for {left_out} of its requests")


class _Clients:
    """Sends each case by the client of its protocol."""

    def __init__(self, clients: Mapping[str, LoadClient]) -> None:
        self._clients = clients

    async def send(self, case: Case, answer: Answer) -> None:
        """Send a case. Raise FaultError or InvalidRequestError."""
        await self._clients[case.protocol].send(case, answer)


class _Recorder:
    """Hands what is measured to the summary of a step and to the file of the samples, without the API key."""

    def __init__(self, summary: Summary, samples: LoadCsvWriter, mask: KeyMask) -> None:
        self.summary = summary
        self._samples = samples
        self._mask = mask

    def add(self, sample: Sample) -> None:
        """Add a request that has ended."""
        if sample.error is not None:
            sample = replace(sample, error=self._mask(sample.error))  # before a part of the key is cut off
        self.summary.add(sample)
        self._samples.add(sample)

    def add_client_delay(self, time: float, delay: float) -> None:
        """Add how late the client was."""
        self.summary.add_client_delay(time, delay)


def _within_file_limit(steps: Sequence[Step]) -> Sequence[Step]:
    """Return the steps with as many requests at a time as the limit of open files allows; most need a connection."""
    most = _raise_file_limit() - _OTHER_FILES
    if tall := [step.name for step in steps if (step.concurrency or 0) > most]:
        raise SettingsError(f"the step {tall[0]} needs more connections than this machine allows (ulimit -n): {most}")
    return [replace(step, most_at_a_time=max(1, min(step.most_at_a_time, most))) for step in steps]


def _raise_file_limit() -> int:
    """Let this process open as many files as the system allows, and return this number."""
    wanted = load_generator.MAX_AT_A_TIME + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        target = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, target), hard))
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else min(soft, wanted)


def _shown(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"{1000 * seconds:.1f} ms"
