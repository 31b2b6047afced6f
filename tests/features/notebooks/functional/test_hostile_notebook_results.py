"""A target that lies about its notebooks gets no pass, and its text does no harm in any report.

A program takes the place of the notebook worker, and writes the files of the worker as an attacker would.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from typing import Any, Final

import pytest
import yaml

from tests.features.notebooks.unit.worker_files import failed_notebook, result
from toolbox.features.notebooks.worker.notebook_results import (
    FailedCell,
    Fault,
    NotebookRecord,
    TestKind,
    TestOutcome,
)
from toolbox.testing import Workspace

CONTROL: Final = "\x1b]0;pwned\x07\x1b[31m\u202e"
HOSTILE: Final = f"{CONTROL}<img src=x onerror=alert(1)>\n::error::pwned\n##vso[x]"
WORKER: Final = """
    import sys
    from pathlib import Path

    name, lines = sys.argv[1], Path("../src/lies", f"{sys.argv[1]}.jsonl")
    with open("results.jsonl", "w") as file:
        file.write(lines.read_text() * (200_000 if name == "flood" else 1))
    if name == "changed":
        Path("../src/settings.json").write_text('{"runtime": {"name": "x"}, "limits": {}}')
"""


def lines(*records: dict[str, Any] | str) -> str:
    """Return the content of `results.jsonl`."""
    return "".join(f"{record if isinstance(record, str) else json.dumps(record)}\n" for record in records)


def check(name: str, **fields: Any) -> dict[str, Any]:
    """Return a failed result of a Python check."""
    fields = {"fault": Fault.EXPECTATION, **fields}
    return result(f"gpu:{name}", TestOutcome.FAILED, TestKind.PYTHON, **fields)


GOOD: Final = (result(), result("gpu", kind=TestKind.PYTHON))
_FAILED_CELL: Final = NotebookRecord(failed_cell=FailedCell(3, HOSTILE, HOSTILE, HOSTILE))
LIES: Final[Mapping[str, tuple[str, str]]] = {
    "honest": (lines(*GOOD), ""),
    "nothing": ("", "files/results.jsonl is empty: no test has ended"),
    "one_result": (lines(GOOD[0]), "python.gpu: there is no result"),
    "flood": (lines(result()), "notebook.train: the test has several results"),
    "deep": (lines("[" * 1_000_000, *GOOD), "files/results.jsonl:1 is not a result: Invalid JSON"),
    "not_a_number": (
        lines(json.dumps(GOOD[0]).replace("1.5", "NaN"), GOOD[1]),
        "files/results.jsonl:1 is not a result: seconds: must be a finite number",
    ),
    "outside": (
        lines({**GOOD[0], "notebook": {"executed": "../../../../run.json"}}, GOOD[1]),
        "files/results.jsonl:1 is not a result: notebook.executed: must be the name of a file",
    ),
    "another_test": (
        lines(*GOOD, result(f"{CONTROL}x")),
        "files/results.jsonl:3 is the result of 'notebook.\\x1b]0;pwned",
    ),
    "changed": (lines(*GOOD), "src/settings.json is not as it was sent: the workload has changed it"),
    "skipped": (
        lines(*({**record, "outcome": "skipped"} for record in GOOD)),
        "0 tests executed (2 skipped), but at least 1 must be executed",
    ),
    "text": (
        lines(
            check("=1+1", checked=HOSTILE, expected=HOSTILE, found=HOSTILE, message=HOSTILE),
            check(f"@SUM(A1){HOSTILE}"),
            failed_notebook(message="", notebook=_FAILED_CELL),
        ),
        "python.gpu:=1+1: <img src=x onerror=alert(1)> ::error::pwned ##vso[x]",
    ),
}
ORCHESTRATION: Final = """
    from toolbox.orchestration import matrix

    def test():
        matrix.run()
"""
CONFIG: Final = {
    "matrix": {
        "axes": {"lie": list(LIES)},
        "workload": {
            "command": ["python3", "../src/worker.py", "{@cell.lie}"],
            "files": {"worker.py": "projects/liar/worker.py", "lies": "projects/liar/lies"},
            "write": {
                "settings.json": {
                    "runtime": {"name": "r"},
                    "limits": {},
                    "checks": [{"name": "gpu", "file": "checks/gpu.py"}],
                    "notebooks": [{"name": "train", "file": "notebooks/train.ipynb"}],
                }
            },
        },
        "checks": [{"check": "notebooks"}],
        "metrics": {"seconds": {"source": "notebook", "notebook": "train"}},
    }
}


@pytest.fixture(scope="module")
def liar(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Return a workspace in which all lies have been told."""
    workspace = Workspace(tmp_path_factory.mktemp("liar") / "workspace")
    workspace.write(
        {
            "projects/liar/orchestration.py": ORCHESTRATION,
            "projects/liar/worker.py": WORKER,
            "config/liar.yaml": yaml.safe_dump(CONFIG),
            **{f"projects/liar/lies/{name}.jsonl": text for name, (text, _) in LIES.items()},
        }
    )
    outcome = workspace.run(
        "project", "run", "liar", "--jobs=2", env={"TOPGALLANT_WORKSPACE": str(workspace.directory)}
    )
    workspace.write({"stdout": outcome.stdout, "stderr": outcome.stderr})
    assert outcome.exit_code == 1, str(outcome)
    return workspace


def cells(liar: Workspace) -> dict[str, dict[str, Any]]:
    """Return the cells by the name of the lie."""
    steps = [step for step in liar.summary()["steps"] if step["kind"] == "cell"]
    return {step["name"].partition("=")[2]: step for step in steps}


def test_no_lie_passes_and_each_is_named(liar: Workspace) -> None:
    found = cells(liar)
    assert {name: cell["verdict"] for name, cell in found.items()} == {
        name: "failed" if message else "passed" for name, (_, message) in LIES.items()
    }
    for name, (_, message) in LIES.items():
        assert any(line.removeprefix("notebooks: ").startswith(message) for line in found[name]["message"].split("\n"))


def test_a_lie_is_a_failure_of_the_check_and_a_fault_of_a_test_one_of_the_product(liar: Workspace) -> None:
    causes = {name: cell["cause"] for name, cell in cells(liar).items()}
    assert causes == dict.fromkeys(LIES, "check") | {"honest": None, "text": "product"}


def test_a_lie_gives_no_metric(liar: Workspace) -> None:
    for name in ("one_result", "honest"):  # the fake worker gives no cells
        (metric,) = cells(liar)[name]["metrics"]
        assert "no cell of 'train' was executed" in metric["fault"]
    (metric,) = cells(liar)["flood"]["metrics"]
    assert metric["value"] is None


def test_the_text_of_a_target_controls_neither_terminal_nor_pages(liar: Workspace) -> None:
    run = liar.run_directory()
    shown = liar.run("results", "show", "--tests")
    names = ("junit.xml", "report.html")
    texts = [liar.directory.joinpath("stdout").read_text(), shown.stdout, *((run / name).read_text() for name in names)]
    assert shown.exit_code == 0, str(shown)
    for text in texts:
        assert "onerror" in text, "the text is shown"
        assert not set(text) & {"\x1b", "\x07", "\u202e"}
    assert "<img src=x" not in "".join((run / name).read_text() for name in names)
    for text in texts[:2]:
        assert not [line for line in text.splitlines() if line.lstrip().startswith("::") or "##vso[" in line]


def test_a_spreadsheet_reads_names_as_text(liar: Workspace) -> None:
    outcome = liar.run("results", "list", "--tests=*gpu*", "--format=csv")
    fields = [field for row in csv.reader(io.StringIO(outcome.stdout)) for field in row]
    assert any("gpu:=1+1" in field for field in fields)
    assert not [field for field in fields if field.startswith(("=", "+", "@"))]
