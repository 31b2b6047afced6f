"""One run of the project notebooks with healthy and faulty notebooks: each has its own verdict, cause and evidence."""

from __future__ import annotations

import html
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from xml.etree.ElementTree import Element

import pytest
import yaml
from defusedxml import ElementTree

from toolbox.features.notebooks.metrics.notebook import Source
from toolbox.ground.system import places, processes
from toolbox.testing import Outcome, Workspace

KILL_WORKER: Final = """
import os, pathlib, signal
process = os.getpid()
while "features/notebooks/worker" not in pathlib.Path(f"/proc/{process}/cmdline").read_text():
    process = int(pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
os.kill(process, signal.SIGKILL)
"""
SOURCES: Final[Mapping[str, tuple[str, ...]]] = {
    "healthy": ("x = 20", "print(x + 1)"),
    "raises": ("def load():\n    raise ValueError('no data')", "load()", "print('not reached')"),
    "hostile": (r"raise ValueError('\x1b]0;pwned\x07\x1b[31m<script>alert(1)</script>\u202e\n::error::=1+1')",),
    "never_ends": ("import time", "while True:\n    time.sleep(0.1)"),
    "kills_its_kernel": ("import os, signal", "os.kill(os.getpid(), signal.SIGKILL)"),
    "exhausts_memory": ("blocks = []\nwhile True:\n    blocks.append(bytearray(50_000_000))",),
    "floods": ("for _ in range(50):\n    print('x' * 1_000_000)",),
    "kills_its_worker": (KILL_WORKER,),
    "needs_a_person": ("raise AssertionError",),
}


def notebook(sources: tuple[str, ...]) -> str:
    """Return the text of a notebook with code cells."""
    cells: list[dict[str, Any]] = [
        {
            "id": f"c{number}",
            "cell_type": "code",
            "metadata": {},
            "source": source,
            "outputs": [],
            "execution_count": None,
        }
        for number, source in enumerate(sources, start=1)
    ]
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells})


def with_parameter() -> str:
    """Return the text of a notebook with the parameter `größe` and with ids, which its format does not allow."""
    content = json.loads(notebook(("größe = 1", "assert größe == 9")))
    content["cells"][0]["metadata"] = {"tags": ["parameters"]}
    return json.dumps({**content, "nbformat_minor": 4})


def with_output(text: str) -> str:
    """Return the text of a notebook whose last cell has an output."""
    content = json.loads(notebook(("x = 20", "print(x + 1)")))
    outputs = [{"output_type": "stream", "name": "stdout", "text": text}]
    content["cells"][-1] |= {"execution_count": 2, "outputs": outputs}
    return json.dumps(content)


FILES: Final = {
    "not_json": "# a notebook\n",
    "format_3": json.dumps({"nbformat": 3, "nbformat_minor": 0, "worksheets": []}),
    "differs": with_output("22\n"),
}
UNICODE: Final = "größe 数据"
NO_KERNEL: Final = "no_kernel"
SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "never_ends": {"cell_timeout": 1},
    "differs": {"compare_outputs": True},
}
BESIDE_HEALTHY: Final = ("raises", "kills_its_kernel", "not_json", NO_KERNEL)  # each kernel takes a second
NOT_FAULTY: Final = ("healthy", "needs_a_person", "kills_its_worker")
FAULTY: Final = (*(name for name in SOURCES if name not in NOT_FAULTY), *FILES, NO_KERNEL)


def overrides(workspace: Workspace) -> dict[str, Any]:
    """Return the changes to the configuration: a runtime for each fault, with a faulty and a healthy notebook."""

    def entry(name: str, **fields: Any) -> dict[str, Any]:
        file = "healthy" if name == NO_KERNEL else name
        return {"file": str(workspace.directory / f"books/{file}.ipynb"), "name": name, "timeout": 60, **fields}

    shipped = yaml.safe_load((places.builtin_root() / "config/notebooks.yaml").read_text())
    faulty = {
        name: {
            "kernel": "nosuch" if name == NO_KERNEL else "python3",
            "notebooks": [
                entry(name, **SETTINGS.get(name, {})),
                *([entry("healthy")] if name in BESIDE_HEALTHY else []),
            ],
        }
        for name in (*FAULTY, "kills_its_worker")
    }
    parametrised = {"file": str(workspace.directory / f"books/{UNICODE}.ipynb"), "parameters": {"größe": 9}}
    healthy = [entry("healthy"), entry("needs_a_person", manual="mount the data set"), parametrised]
    return {
        "runtimes": {"sound": {"kernel": "python3", "notebooks": healthy}, **faulty},
        "machines": {"here": {"target": "local", "memory_gb": 1}},
        "notebooks.python": sys.executable,
        "notebooks.checks": [],
        "notebooks.environments": str(workspace.directory / "environments"),
        "host.capture_state.enabled": False,
        "matrix.retries": {"infrastructure": 1, "backoff": {"first": 0.1}},
        "matrix.checks": [check for check in shipped["matrix"]["checks"] if check["check"] != "metric"],
    }


@dataclass(frozen=True)
class Ended:
    """A run that has ended."""

    workspace: Workspace
    outcome: Outcome

    @property
    def directory(self) -> Path:
        return self.workspace.run_directory()

    def cell(self, runtime: str) -> Mapping[str, Any]:
        """Return the step of the cell of a runtime in `summary.json`."""
        steps = self.workspace.summary()["steps"]
        (cell,) = [step for step in steps if step["name"] == f"runtime={runtime},machine=here"]
        return dict(cell)

    def row(self, runtime: str, name: str) -> Element:
        """Return the element of a notebook in `junit.xml`."""
        root: Element = ElementTree.fromstring((self.directory / "junit.xml").read_text())
        classname = f"runtime={runtime},machine=here.notebook"
        (row,) = root.findall(f".//testcase[@classname='{classname}'][@name='{name}']")
        return row

    def table(self, runtime: str) -> str:
        """Return the row of the cell in the table on the terminal, with single spaces."""
        lines = self.outcome.stdout.partition("\nstep ")[2].splitlines()
        return " ".join(next(line for line in lines if f"runtime={runtime},machine=here" in line).split())

    @property
    def page(self) -> str:
        return (self.directory / "report.html").read_text()


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Run all notebooks, two cells at a time."""
    workspace = Workspace(tmp_path_factory.mktemp("notebook-faults") / "workspace")
    files = {**{name: notebook(sources) for name, sources in SOURCES.items()}, **FILES, UNICODE: with_parameter()}
    workspace.write({f"books/{name}.ipynb": text for name, text in files.items()})
    workspace.write({"overrides.yaml": yaml.safe_dump(overrides(workspace))})
    command = ("project", "run", "notebooks", "--overrides=overrides.yaml", "--jobs=2")
    return Ended(workspace, workspace.run(*command, timeout=600))


PRODUCT: Final = ("failed", "product")
ENDS: Final[Mapping[str, tuple[tuple[str, str], str]]] = {
    "raises": (PRODUCT, "code cell 2: ValueError: no data"),
    "hostile": (PRODUCT, "code cell 1: ValueError: <script>alert(1)</script> ::error::=1+1"),
    "never_ends": (("failed", "timeout"), "code cell 2: the cell exceeded its time limit of 1 s"),
    "kills_its_kernel": (PRODUCT, "code cell 2: the kernel ended by the signal SIGKILL"),
    "exhausts_memory": (PRODUCT, "code cell 1: MemoryError (out of memory)"),
    "floods": (PRODUCT, "code cell 1: the outputs of the notebook exceed the limit of 19.1 MiB"),
    "differs": (PRODUCT, "code cell 2: stdout differs"),
    "not_json": (PRODUCT, "the file is not JSON: Expecting value: line 1 column 1 (char 0)"),
    "format_3": (PRODUCT, "the notebook has the old format 3: convert it with `jupyter nbconvert --to notebook --nb"),
    "no_kernel": (PRODUCT, "the kernel nosuch does not exist; kernels of this machine: "),
}


def reason(name: str) -> str:
    """Return the beginning of the reason of a fault. A missing kernel is the reason of both notebooks."""
    tests = [name, "healthy"] if name == NO_KERNEL else [name]
    return f"{', '.join(f'notebook.{test}' for test in tests)}: {ENDS[name][1]}"


def test_each_fault_has_its_own_verdict_cause_and_message(ended: Ended) -> None:
    cells = {name: ended.cell(name) for name in FAULTY}
    assert {name: (cell["verdict"], cell["cause"]) for name, cell in cells.items()} == {
        name: end for name, (end, _) in ENDS.items()
    }
    for name, cell in cells.items():
        assert cell["message"].startswith(f"notebooks: {reason(name)}"), name
    assert ended.outcome.exit_code == 3, str(ended.outcome)
    assert "of 12 cells: 10 failed, 1 error, 1 passed" in ended.outcome.stdout


def test_a_notebook_that_kills_the_worker_leaves_an_error_of_the_infrastructure(ended: Ended) -> None:
    cell = ended.cell("kills_its_worker")
    assert (cell["verdict"], cell["cause"], len(cell["attempts"])) == ("error", "infrastructure", 2)
    assert cell["message"].startswith("exit_status: exit status 137 (SIGKILL), expected 0")


def test_a_sound_cell_passes_beside_them_and_shows_the_reason_of_its_manual_notebook(ended: Ended) -> None:
    assert (ended.cell("sound")["verdict"], ended.cell("sound")["cause"]) == ("passed", None)
    assert ended.table("sound").startswith("runtime=sound,machine=here passed 2 of 2 2 passed, 1 skipped ")
    (skipped,) = ended.row("sound", "needs_a_person")
    assert (skipped.tag, skipped.get("message")) == ("skipped", "manual: mount the data set")


def test_a_notebook_may_have_a_name_in_any_language(ended: Ended) -> None:
    assert len(ended.row("sound", "größe-数据")) == 0
    assert {"größe-数据.seconds", "größe-数据.peak_memory"} <= {
        metric["metric"] for metric in ended.cell("sound")["metrics"]
    }


def test_the_terminal_shows_the_verdicts_and_the_messages(ended: Ended) -> None:
    for name in FAULTY:
        verdict, cause = ENDS[name][0]
        is_alone = name not in BESIDE_HEALTHY
        tests = "2 failed" if name == NO_KERNEL else "1 failed" if is_alone else "1 passed, 1 failed"
        assert ended.table(name).startswith(f"runtime={name},machine=here {verdict} {cause} 1 of 2 {tests} ")
        assert f"notebooks: {reason(name)[:60]}" in ended.outcome.stdout


def test_junit_has_failures_with_their_evidence_and_healthy_notebooks_beside_them(ended: Ended) -> None:
    for name in FAULTY:
        (failure,) = ended.row(name, name)
        assert failure.tag == "failure"
        assert (failure.get("message") or "").startswith(ENDS[name][1])
    for name in BESIDE_HEALTHY:
        assert len(ended.row(name, "healthy")) == (name == NO_KERNEL)


def test_a_failure_shows_the_source_the_exception_and_the_traceback(ended: Ended) -> None:
    (failure,) = ended.row("raises", "raises")
    text = failure.text or ""
    assert text.startswith("code cell 2:\nload()\n\nValueError: no data\n\n---")
    assert "----> 2     raise ValueError('no data')" in text
    (failure,) = ended.row("differs", "differs")
    assert {"-22", "+21"} <= set((failure.text or "").splitlines())
    (failure,) = ended.row("never_ends", "never_ends")
    assert "----> 2     time.sleep(0.1)" in (failure.text or "")


def test_the_report_shows_the_messages(ended: Ended) -> None:
    for name in FAULTY:
        assert html.escape(reason(name), quote=False) in ended.page


def test_text_of_a_notebook_stays_text(ended: Ended) -> None:
    assert "<script>alert(1)" not in ended.page
    for text in (ended.outcome.stdout, ended.page, (ended.directory / "junit.xml").read_text()):
        assert not set(text) & {"\x1b", "\x07", "\u202e"}
    assert not [line for line in ended.outcome.stdout.splitlines() if line.lstrip().startswith("::")]


def test_the_time_and_the_memory_of_each_cell_are_recorded(ended: Ended) -> None:
    (file,) = ended.directory.glob("*__test/*runtime=sound,*/attempt-1/files/results.jsonl")
    metrics = {metric["metric"]: metric["value"] for metric in ended.cell("sound")["metrics"]}
    assert metrics["healthy.seconds"] == Source(notebook="healthy").read(file.parents[1])
    assert metrics["healthy.peak_memory"] > 1_000_000
    healthy = json.loads(file.read_text().splitlines()[0])
    cells = healthy["notebook"]["cells"]
    assert [(cell["number"], cell["id"], cell["outcome"]) for cell in cells] == [
        (1, "c1", "passed"),
        (2, "c2", "passed"),
    ]
    assert Source(notebook="healthy").read(file.parents[1]) == pytest.approx(sum(cell["seconds"] for cell in cells))


def test_nothing_is_left_running(ended: Ended) -> None:
    assert processes.marked(ended.workspace.directory.resolve()) == []
