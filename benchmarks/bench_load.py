"""
Compares the load of the worker of inference tests with Locust, on the same reference server.

Both send the same request for a stream, as many at a time, for the same time, one tool after the other on the machine
of the server. Locust runs a script with its `FastHttpUser`, the faster one of its two clients for HTTP. The script
reads each event as JSON, as is necessary to count tokens, and notes the exact times, which Locust itself rounds.

Locust comes from the package index into a virtual environment in `$XDG_CACHE_HOME/topgallant/locust`. Without network,
only the worker is measured.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1])]

import psutil  # noqa: E402

from tests.features.inference.servers.reference_server import ReferenceServer, serving, write_checkpoint  # noqa: E402

ROUNDS, SECONDS, WARM_UP = 3, 8.0, 2.0
CONCURRENCIES = (1, 16)
LIMIT = 1.5  # of the median time of a request with one request at a time, in which the clients hardly matter
LOCUST = "locust==2.47.0"
TOKENS = 24
REQUEST = {"prompt": "abc", "max_tokens": TOKENS, "temperature": 0, "stream": True}
ENVIRONMENT = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "topgallant" / "locust"
SCRIPT = """
import json, os, time
from locust import FastHttpUser, events, task

BODY = json.loads(os.environ["BENCH_REQUEST"])
spawned, rows = [], []

@events.spawning_complete.add_listener
def note_begin(user_count, **_):
    spawned.append(time.time())
    print("begins", flush=True)

@events.quitting.add_listener
def write(environment, **_):
    with open("rows.json", "w") as file:
        json.dump({"begin": spawned[0], "rows": rows, "errors": environment.stats.total.num_failures}, file)

class Client(FastHttpUser):
    @task
    def complete(self):
        begin, first, tokens = time.time(), None, 0
        with self.client.post("/v1/completions", json=BODY, stream=True, catch_response=True) as response:
            while line := response.stream.readline(b"\\n"):
                if line.startswith(b"data: {") and json.loads(line[6:])["choices"][0]["text"]:
                    first = first or time.time()
                    tokens += 1
            ended = time.time()
            response.request_meta["response_time"] = 1000 * (ended - begin)
        rows.append((begin, first, ended, tokens))
"""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What a tool has measured: times in seconds, and its own CPU time per request."""

    rate: float
    first_token: float
    p50: float
    p95: float
    cpu: float


class Run:
    """A tool that runs.

    Args:
        begins: a word in its output that says that the load has begun.
    """

    def __init__(self, command: Sequence[str], directory: Path, environment: Mapping[str, str], begins: str) -> None:
        self._begins = begins
        self._lines: list[str] = []
        self._has_begun = threading.Event()
        self._process = subprocess.Popen(
            command, cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self._lines.append(line)
            if self._begins in line:
                self._has_begun.set()
        self._has_begun.set()

    def cpu(self) -> float:
        """Wait until the tool has ended, and return its CPU time per second of the measured time."""
        self._has_begun.wait()
        time.sleep(WARM_UP)
        before = self._cpu()
        time.sleep(SECONDS - WARM_UP)
        used = self._cpu() - before
        self._reader.join()
        if self._process.wait() != 0:
            sys.exit("".join(self._lines))
        return used / (SECONDS - WARM_UP)

    def _cpu(self) -> float:
        try:
            times = psutil.Process(self._process.pid).cpu_times()
        except psutil.NoSuchProcess:
            sys.exit("".join(self._lines))
        return times.user + times.system


def ours(server: ReferenceServer, concurrency: int) -> Figures:
    """Run the worker."""
    step = {"concurrency": concurrency, "seconds": SECONDS, "warm_up": WARM_UP}
    with tempfile.TemporaryDirectory() as directory:
        case = {"name": "a", "protocol": "completions", "request": {"model": server.model, **REQUEST}}
        settings = {"server": {"url": server.url}, "load": {"steps": [step]}}
        Path(directory, "cases.json").write_text(json.dumps({"cases": [case]}))
        Path(directory, "settings.json").write_text(json.dumps(settings))
        command = [sys.executable, "-m", "toolbox.features.inference.client", "settings.json"]
        path = str(Path(__file__).parents[1])
        cpu = Run(command, Path(directory), os.environ | {"PYTHONPATH": path}, "begins").cpu()
        (result,) = json.loads(Path(directory, "load.json").read_text())["steps"]
    if result["errors"]:
        sys.exit(f"the worker has errors: {result['error_messages']}")
    return Figures(
        rate=result["completed_rate"],
        first_token=result["first_token"]["p50"],
        p50=result["end_to_end"]["p50"],
        p95=result["end_to_end"]["p95"],
        cpu=cpu / result["completed_rate"],
    )


def theirs(server: ReferenceServer, concurrency: int) -> Figures:
    """Run Locust."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "locustfile.py").write_text(SCRIPT)
        host = server.url.removesuffix("/v1")
        flags = ["--headless", "--only-summary", f"--host={host}", "--stop-timeout=30", f"--run-time={SECONDS:g}s"]
        users = [f"--users={concurrency}", f"--spawn-rate={concurrency}"]
        body = json.dumps({"model": server.model, **REQUEST})
        command = [str(ENVIRONMENT / "bin" / "locust"), *flags, *users]
        cpu = Run(command, Path(directory), os.environ | {"BENCH_REQUEST": body}, "begins").cpu()
        result: Any = json.loads(Path(directory, "rows.json").read_text())
    begin, rows = result["begin"] + WARM_UP, result["rows"]
    end = begin + SECONDS - WARM_UP
    measured = [row for row in rows if begin <= row[0] < end]
    if result["errors"] or {row[3] for row in measured} != {TOKENS}:
        sys.exit(f"Locust has {result['errors']} errors, and these numbers of tokens: { {row[3] for row in measured} }")
    rate = sum(begin <= row[2] < end for row in rows) / (end - begin)
    times = statistics.quantiles([row[2] - row[0] for row in measured], n=100, method="inclusive")
    return Figures(
        rate=rate,
        first_token=statistics.median(row[1] - row[0] for row in measured),
        p50=times[49],
        p95=times[94],
        cpu=cpu / rate,
    )


def install() -> bool:
    """Install Locust, and return whether it is there."""
    python = ENVIRONMENT / "bin" / "python"
    if not (ENVIRONMENT / "bin" / "locust").exists():
        venv.create(ENVIRONMENT, with_pip=True, clear=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries=1", LOCUST]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        if found.returncode != 0:
            print(f"{LOCUST} cannot be installed, so there is nothing to compare with:\n{found.stderr[-2000:]}")
            return False
    return True


def compare(server: ReferenceServer, concurrency: int, *, has_locust: bool) -> float:
    """Measure both tools alternately, print the medians and the median ratios, and return the ratio of the p50."""
    pairs = []
    for _ in range(ROUNDS):
        mine = ours(server, concurrency)
        pairs.append((mine, theirs(server, concurrency) if has_locust else mine))
    print(f"{concurrency} at a time, {ROUNDS} rounds of {SECONDS:g} s:")
    for name, unit, scale in (
        ("rate", "requests/s", 1),
        ("first_token", "ms (p50)", 1e3),
        ("p50", "ms", 1e3),
        ("p95", "ms", 1e3),
        ("cpu", "ms of CPU of the client per request", 1e3),
    ):
        mine, other = (
            statistics.median(getattr(each, name) for each in column) * scale for column in zip(*pairs, strict=True)
        )
        ratio = statistics.median(getattr(one, name) / getattr(two, name) for one, two in pairs)
        against = f" against {other:.4g} with Locust: {ratio:.2f} times" if has_locust else ""
        print(f"  {name}: {mine:.4g} {unit}{against}")
    return statistics.median(one.p50 / two.p50 for one, two in pairs)


def main() -> int:
    """Measure, and return 1 if the worker measures other times than Locust where the clients hardly matter."""
    has_locust = install()
    with tempfile.TemporaryDirectory() as directory:
        checkpoint = Path(directory) / "model.npz"
        write_checkpoint(checkpoint)
        with serving(checkpoint, max_new_tokens=TOKENS, max_batch_size=64) as server:
            ratios = {number: compare(server, number, has_locust=has_locust) for number in CONCURRENCIES}
    return 0 if 1 / LIMIT <= ratios[1] <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
