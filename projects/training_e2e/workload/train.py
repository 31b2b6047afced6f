"""
Train a small character-level language model on the CPU, as a workload that tests can measure.

    python train.py --settings settings.json --corpus corpus.txt --output DIR

Each step is a line on stdout. DIR gets `train_metrics.json` and a profile for TensorBoard; `Finished
training run` is the last line, and only where both were written. The exit status is 0; 1 where the training
diverged; 2 where the settings or the corpus are unfit, with one line on stderr that says why.

It needs numpy and the standard library, and the files beside this one.
"""

from __future__ import annotations

import os
import sys

# Read when numpy is loaded. One thread a run: runs side by side must not disturb each other's step time.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
sys.dont_write_bytecode = True  # this folder is copied whole to hosts

# ruff: noqa: E402  (what follows loads numpy)
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

from train_settings import Settings, SettingsError, read_settings
from transformer import Adam, Shape, Tokens, Transformer, clip, initial_parameters
from xplane import Span, encode_profile

GRADIENT_LIMIT = 1.0  # norm; a rare bad batch must not throw the parameters far away
LOSS_WINDOW = 5  # steps that first_loss and last_loss are the mean of


class DivergedError(Exception):
    """The loss or its gradient stopped being a finite number."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """A finished training: when it started (nanoseconds since the epoch), and each step's time and loss."""

    start_ns: int
    spans: Sequence[Span]
    losses: Sequence[float]
    parameters: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status."""
    options = parse_arguments(arguments)
    try:
        settings = read_settings(options.settings)
        # No shell has followed `~` for who starts this on another machine.
        tokens, vocabulary = read_corpus(options.corpus.expanduser(), settings.context)
        clear_results(options.output)
        result = train(settings, tokens, vocabulary)
    except SettingsError as error:
        print(f"train.py: {error}", file=sys.stderr)
        return 2
    except DivergedError as error:
        print(f"train.py: {error}", file=sys.stderr)
        return 1
    write_profile(options.output / "profile", result)
    metrics = json.dumps(describe(settings, result), indent=2)
    write_atomically(options.output / "train_metrics.json", metrics.encode())
    print("Finished training run", flush=True)
    return 0


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line's files as paths."""
    parser = argparse.ArgumentParser(description="Train a small character-level language model on the CPU.")
    parser.add_argument("--settings", type=Path, required=True, help="JSON file of the settings")
    parser.add_argument("--corpus", type=Path, required=True, help="text to learn, UTF-8")
    parser.add_argument("--output", type=Path, required=True, help="directory for metrics and profile")
    return parser.parse_args(arguments)


def read_corpus(path: Path, context: int) -> tuple[Tokens, int]:
    """The text as indices into its sorted distinct characters, and how many of these there are."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise SettingsError(f"cannot read the corpus {path}: {error}") from error
    if len(text) <= context:
        raise SettingsError(f"the corpus {path} has {len(text)} characters: context {context} needs more")
    characters, tokens = np.unique(np.frombuffer(text.encode("utf-32-le"), np.uint32), return_inverse=True)
    return tokens, len(characters)


def train(settings: Settings, tokens: Tokens, vocabulary: int) -> Result:
    """Take all the steps, a line on stdout for each; raises DivergedError."""
    generator = np.random.default_rng(settings.seed)
    shape = Shape(
        vocabulary=vocabulary,
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
    size = sum(array.size for array in parameters.values())
    return Result(start_ns=start_ns, spans=spans, losses=losses, parameters=size)


def sample(tokens: Tokens, settings: Settings, generator: np.random.Generator) -> tuple[Tokens, Tokens]:
    """A batch of random pieces of the text and, for each character, the one that follows."""
    starts = generator.integers(0, len(tokens) - settings.context, settings.batch)
    pieces = tokens[starts[:, np.newaxis] + np.arange(settings.context + 1)]
    return pieces[:, :-1], pieces[:, 1:]


def take_step(model: Transformer, optimizer: Adam, inputs: Tokens, targets: Tokens, *, step: int) -> float:
    """Update the parameters once; the loss before it."""
    # A number that overflows is found below, with a message that says more than numpy's warnings.
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
    The content of train_metrics.json.

    `step_time_seconds` is the median after the warm-up. `first_loss` and `last_loss` are the means of the
    first and the last five steps (of half of them, where there are fewer than ten): one batch alone is noisy.
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
        "parameters": result.parameters,
        "settings": dataclasses.asdict(settings),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """What the step time depends on besides the settings."""
    return {"numpy": np.__version__, "python": platform.python_version()}


def clear_results(output: Path) -> None:
    """Remove what an earlier run left: it must not be taken for this run's."""
    (output / "train_metrics.json").unlink(missing_ok=True)
    shutil.rmtree(output / "profile", ignore_errors=True)


def write_profile(directory: Path, result: Result) -> None:
    """One file, at the place where TensorBoard's profiler looks for it."""
    when = time.strftime("%Y_%m_%d_%H_%M_%S", time.localtime(result.start_ns / 1e9))
    hostname = socket.gethostname()
    path = directory / "plugins" / "profile" / when / f"{hostname}.xplane.pb"
    write_atomically(path, encode_profile(result.spans, start_ns=result.start_ns, hostname=hostname))


def write_atomically(path: Path, content: bytes) -> None:
    """The whole file or none: who waits for it must not read a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(path)


if __name__ == "__main__":
    sys.exit(main())
