"""Test inference servers with the project inference."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from toolbox.config import overrides as overrides_text
from toolbox.features.inference import case_recorder, load_options, load_results, load_table, standalone_load
from toolbox.features.inference import cells as inference_cells
from toolbox.features.inference.local_worker import RunningServer
from toolbox.features.inference.recorded_responses import Keys
from toolbox.features.inference.standalone_load import StandaloneLoad
from toolbox.ground.interface import options
from toolbox.ground.interface.options import ArtifactDir, Cells, Deadline, Overrides, Presets, SummaryFormat
from toolbox.ground.interface.signature import Help
from toolbox.ground.model.errors import StepError
from toolbox.ground.model.foreign_text import printable, printable_json
from toolbox.ground.model.quantities import AnySeconds, Seconds
from toolbox.ground.model.verdicts import Cause, ExitCode, Verdict
from toolbox.ground.system import redaction
from toolbox.matrix.plan import Selection
from toolbox.orchestration import project_run
from toolbox.orchestration.request import RunRequest
from toolbox.reports.terminal import command_steps, live_view, project_runs

ImageTag = Annotated[
    str | None,
    Help("the tag of the servers' image, for pods on Kubernetes. When left out, the field `inference.image_tag`."),
]

AnswerTimeout = Annotated[Seconds, Help("the time in seconds in which an answer must be complete.")]


class Inference:
    """Test inference servers with the project inference."""

    def run(
        self,
        *,
        image_tag: ImageTag = None,
        presets: Presets = None,
        overrides: Overrides = None,
        cells: Cells = None,
        deadline: Deadline = None,
        artifact_dir: ArtifactDir = None,
        format: SummaryFormat = "text",  # noqa: A002  # the flag of the command line
    ) -> int:
        """Run the project inference, as `project run inference` does, and choose the tag of the servers' image."""
        files, values = overrides_text.parse(overrides)
        if image_tag is not None:
            values[inference_cells.IMAGE_TAG] = image_tag
        request = RunRequest(
            inference_cells.PROJECT,
            presets or (),
            files,
            values,
            artifact_dir=artifact_dir,
            selection=Selection(cells),
            deadline=deadline,
        )
        return project_runs.run_and_show(partial(project_run.execute, request), as_json=format == "json")

    def load(  # the parameters are flags of a command
        self,
        *,
        cases: list[Path],
        server: RunningServer,
        rates: list[float] | None = None,
        concurrencies: list[int] | None = None,
        seconds: AnySeconds = 60,
        warm_up: AnySeconds = 10,
        arrivals: Literal["poisson", "constant"] = "poisson",
        seed: int = 0,
        objectives: dict[str, AnySeconds] | None = None,
        timeout: AnswerTimeout = 120,
        artifact_dir: ArtifactDir = None,
        format: options.Format[Literal["text", "json"]] = "text",  # noqa: A002  # the flag of the command line
    ) -> int:
        """
        Send a load to a running server, and show times and throughput for each rate and concurrency.

        Args:
            cases: the case files whose requests are sent, in order, again and again.
            rates: requests per second, one step for each rate. Requests are sent even if earlier requests have no
                answer yet.
            concurrencies: numbers of requests that run at the same time, one step for each number. These steps run
                after the steps of `--rates`.
            seconds: the time of each step in seconds, including its warm-up.
            warm_up: the time in seconds at the beginning of each step. Its requests are not measured.
            arrivals: whether the times between the requests of a rate are random (poisson) or equal (constant).
            seed: the seed of the random times.
            objectives: the upper limits in seconds for a good request, as in
                {first_token: 0.5, per_token: 0.05, end_to_end: 5}.
            artifact_dir: the directory for the results. When left out: $ARTIFACT_DIR, else artifacts/toolbox.
        """
        fields = {
            "rates": rates,
            "concurrencies": concurrencies,
            "seconds": seconds,
            "warm_up": warm_up,
            "arrivals": arrivals,
            "seed": seed,
            "objectives": objectives,
        }
        prepared = load_options.prepared(server, cases, fields=fields, timeout=timeout)
        return _run_and_show(prepared, artifact_dir=artifact_dir, as_json=format == "json")

    def record_cases(
        self,
        *,
        cases: Path,
        output: Path,
        server: RunningServer,
        keys: Keys | None = None,
        timeout: AnswerTimeout = 120,
        force: bool = False,
    ) -> int:
        """
        Send the requests of a case file to a trusted server, and write a case file that expects the server's answers.

        Nothing is written unless the server answered all cases.

        Args:
            cases: the case file whose requests are sent.
            output: the case file to write.
            keys: the spelling of field names in responses of the gRPC service. When left out, the
                spelling of most fields of the file.
            force: replace the output if it exists.
        """
        lines = case_recorder.record(
            server, cases, output, keys=keys, timeout=timeout, may_replace=force, say=_print_error
        )
        print("\n".join(lines))
        return ExitCode.PASSED


def _print_error(line: str) -> None:
    print(printable(line), file=sys.stderr)


def _run_and_show(load: StandaloneLoad, *, artifact_dir: Path | None, as_json: bool) -> int:
    """Run a load, show the figures of its steps, and return the exit code. An interrupted load shows its first steps.

    Args:
        as_json: print the figures as JSON on stdout, and all other output on stderr.
    """
    redaction.current().add(filter(None, [load.server.api_key]))
    stream = sys.stderr if as_json else sys.stdout
    directory = None
    try:
        with command_steps.opened("inference__load", artifacts=artifact_dir, stream=stream) as step:
            directory = step.directory
            load.run(directory, say=step.note)
            _require_answers(directory)
    finally:
        if directory is not None:
            _show(directory, as_json=as_json)
    return ExitCode.PASSED


def _require_answers(directory: Path) -> None:
    """Raise if a step has no figures, because no request of it was answered."""
    try:
        results = load_results.read(directory)
    except ValueError as error:
        raise StepError(str(error), directory=directory) from None
    if empty := [step.name for step in results.steps if step.requests == step.errors + step.refused]:
        message = f"no request was answered in {', '.join(empty)}"
        raise StepError(message, verdict=Verdict.FAILED, cause=Cause.PRODUCT, directory=directory)


def _show(directory: Path, *, as_json: bool) -> None:
    """Show the steps that have ended, if there are any."""
    try:
        results = load_results.read(directory)
    except ValueError:  # the load ended before its first step, or `_require_answers` has raised
        return
    files = {"results": directory / load_results.FILE, "samples": directory / standalone_load.SAMPLES}
    if as_json:
        content = {**results.model_dump(mode="json"), "files": {name: str(file) for name, file in files.items()}}
        print(printable_json(redaction.current()(json.dumps(content, indent=2, ensure_ascii=False))))
    elif results.steps:
        with live_view.view() as view:
            view.line("")
            load_table.show(results, view.console)
            for name, file in files.items():
                view.line(f"{name}: {file}")
