"""
Train a small character-level language model on the CPU, as a workload that tests can measure.

    python train.py --settings settings.json --corpus corpus.txt --output DIR [--checkpoint model.npz]

The script prints a line per step. It writes `train_metrics.json` and a profile for TensorBoard to DIR, and the
trained model to the checkpoint. If all were written, the last line is `Finished training run`. The exit status is 0
on success, 1 if the training diverged, and 2 if the settings or the corpus are unusable; one line on stderr then
gives the reason.

It needs numpy, the standard library, and the files beside this one.
"""

from __future__ import annotations

import os
import sys

# numpy reads these variables when it is imported. With one thread per run, parallel runs don't slow each other down.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
sys.dont_write_bytecode = True  # hosts get a copy of this folder, which should contain no __pycache__

# ruff: noqa: E402  (the following imports load numpy)
import argparse
import dataclasses
import json
import math
import platform
import shutil
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from checkpoint import Checkpoint, encode
from train_settings import Settings, SettingsError, read_settings
from transformer import Adam, Shape, Tokens, Transformer, clip, initial_parameters
from xplane import Span, encode_profile

GRADIENT_LIMIT = 1.0  # the largest norm of the gradients, so that one bad batch does not ruin the parameters
LOSS_WINDOW = 5  # first_loss and last_loss are means over this number of steps


class DivergedError(Exception):
    """The loss or its gradient stopped being a finite number."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """A finished training: its start in nanoseconds since the epoch, the times and losses of its steps, its model."""

    start_ns: int
    spans: Sequence[Span]
    losses: Sequence[float]
    trained: Checkpoint


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit status."""
    options = parse_arguments(arguments)
    try:
        settings = read_settings(options.settings)
        # Expand `~` here, because the script may be started without a shell.
        tokens, characters = read_corpus(options.corpus.expanduser(), settings.context)
        checkpoint = options.checkpoint.expanduser() if options.checkpoint else None
        clear_results(options.output, checkpoint)
        result = train(settings, tokens, characters)
    except SettingsError as error:
        print(f"train.py: {error}", file=sys.stderr)
        return 2
    except DivergedError as error:
        print(f"train.py: {error}", file=sys.stderr)
        return 1
    if checkpoint:
        write_atomically(checkpoint, encode(result.trained))
    write_profile(options.output / "profile", result)
    metrics = json.dumps(describe(settings, result), indent=2)
    write_atomically(options.output / "train_metrics.json", metrics.encode())
    print("Finished training run", flush=True)
    return 0


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description="Train a small character-level language model on the CPU.")
    parser.add_argument("--settings", type=Path, required=True, help="JSON file of the settings")
    parser.add_argument("--corpus", type=Path, required=True, help="text to learn, UTF-8")
    parser.add_argument("--output", type=Path, required=True, help="directory for metrics and profile")
    parser.add_argument("--checkpoint", type=Path, help="file to write the trained model to (.npz)")
    return parser.parse_args(arguments)


def read_corpus(path: Path, context: int) -> tuple[Tokens, str]:
    """Return the index of each character in the sorted list of distinct characters, and this list."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise SettingsError(f"cannot read the corpus {path}: {error}") from error
    if len(text) <= context:
        raise SettingsError(f"the corpus {path} has {len(text)} characters: context {context} needs more")
    characters, tokens = np.unique(np.frombuffer(text.encode("utf-32-le"), np.uint32), return_inverse=True)
    return tokens, characters.tobytes().decode("utf-32-le")


def train(settings: Settings, tokens: Tokens, characters: str) -> Result:
    """Run all steps, and print a line for each step. Raise DivergedError if the training diverges."""
    generator = np.random.default_rng(settings.seed)
    shape = Shape(
        vocabulary=len(characters),
        layers=settings.layers,
        width=settings.width,
        heads=settings.heads,
        context=settings.context,
    )
    parameters = initial_parameters(shape, generator, settings.precision)
    model = Transformer(shape, parameters)
    optimizer = Adam(parameters, learning_rate=settings.learning_rate)
    spans: list[Span] = []
    losses: list[float] = []
    start_ns, origin = time.time_ns(), time.perf_counter_ns()
    for step in range(settings.steps):
        began = time.perf_counter_ns()
        losses.append(take_step(model, optimizer, *sample(tokens, settings, generator), step=step))
        spans.append(Span(began - origin, time.perf_counter_ns() - began))
        print(f"step {step} loss {losses[-1]:.4f} step_time {spans[-1].duration_ns / 1e9:.4f} s", flush=True)
    trained = Checkpoint(shape=shape, parameters=parameters, characters=characters)
    return Result(start_ns=start_ns, spans=spans, losses=losses, trained=trained)


def sample(tokens: Tokens, settings: Settings, generator: np.random.Generator) -> tuple[Tokens, Tokens]:
    """Return a batch of random pieces of the text, and the same pieces one character later."""
    starts = generator.integers(0, len(tokens) - settings.context, settings.batch)
    pieces = tokens[starts[:, np.newaxis] + np.arange(settings.context + 1)]
    return pieces[:, :-1], pieces[:, 1:]


def take_step(model: Transformer, optimizer: Adam, inputs: Tokens, targets: Tokens, *, step: int) -> float:
    """Update the parameters once, and return the loss before the update."""
    # Overflows are detected below, with a better message than numpy's warnings.
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        loss, gradients = model.loss_and_gradients(inputs, targets)
        norm = clip(gradients, GRADIENT_LIMIT)
        if not (math.isfinite(loss) and math.isfinite(norm)):
            fault = f"loss {loss}, gradient norm {norm}"
            raise DivergedError(f"the training diverged at step {step} ({fault}): lower learning_rate")
        optimizer.update(gradients)
    return loss


def describe(settings: Settings, result: Result) -> dict[str, Any]:
    """
    Return the content of train_metrics.json.

    `step_time_seconds` is the median after the warm-up. `first_loss` and `last_loss` are the means over the first and
    the last five steps (over half of the steps if there are fewer than ten), because a single batch is noisy.
    """
    seconds = [span.duration_ns / 1e9 for span in result.spans]
    step_time = median(seconds[settings.warmup_steps :])
    window = max(1, min(LOSS_WINDOW, settings.steps // 2))
    first_loss, last_loss = fmean(result.losses[:window]), fmean(result.losses[-window:])
    return {
        "step_time_seconds": step_time,
        "step_times_seconds": seconds,
        "warmup_steps": settings.warmup_steps,
        "tokens_per_second": settings.batch * settings.context / step_time,
        "first_loss": first_loss,
        "last_loss": last_loss,
        "loss_drop": first_loss - last_loss,
        "losses": result.losses,
        "parameters": sum(array.size for array in result.trained.parameters.values()),
        "settings": dataclasses.asdict(settings),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Return the versions of software that affect the step time."""
    return {"numpy": np.__version__, "python": platform.python_version()}


def clear_results(output: Path, checkpoint: Path | None) -> None:
    """Remove the results of an earlier run, which must not be mistaken for results of this run."""
    (output / "train_metrics.json").unlink(missing_ok=True)
    if checkpoint:
        checkpoint.unlink(missing_ok=True)
    shutil.rmtree(output / "profile", ignore_errors=True)


def write_profile(directory: Path, result: Result) -> None:
    """Write the profile to the path where TensorBoard's profiler looks for it."""
    timestamp = time.strftime("%Y_%m_%d_%H_%M_%S", time.localtime(result.start_ns / 1e9))
    hostname = socket.gethostname()
    path = directory / "plugins" / "profile" / timestamp / f"{hostname}.xplane.pb"
    write_atomically(path, encode_profile(result.spans, start_ns=result.start_ns, hostname=hostname))


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file atomically, so that a process that waits for the file never reads a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(path)


if __name__ == "__main__":
    sys.exit(main())
