"""Specifications of inference tests become cells, whose answers are judged; each case is a row of its cell.

The worker here answers from a table, without a server.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

import pytest
from defusedxml import ElementTree

from toolbox.testing import Outcome, Workspace

WORKER = """
import json, pathlib, sys
settings = json.loads(pathlib.Path("../src/settings.json").read_text())
table = json.loads(pathlib.Path(sys.argv[1]).read_text())
with open("answers.jsonl", "w") as answers:
    for case in json.loads(pathlib.Path("../src/cases.json").read_text())["cases"]:
        for stream in [False, True] if case["stream"] else [False]:
            text = table[settings["server"]["command"][1]]
            generation = {"text": text, "stop_reason": "MAX_TOKENS"}
            chunks = [{"index": 0, **generation}] if stream else None
            record = {"case": case["name"], "stream": stream, "seconds": 0.5, "generations": [generation]}
            answers.write(json.dumps({**record, "chunks": chunks}) + "\\n")
"""
ORCHESTRATION = '''
    """Serves models."""
    from toolbox.features.inference import cells
    from toolbox.orchestration import matrix


    def derive(configuration):
        """Return the cells."""
        return cells.derive(configuration)


    def test():
        matrix.run()
'''
CASES = """
- {name: right, request: {requests: [{text: x}]}, response: {responses: [{text: y}]}}
- {name: sharded, single_shard_only: true, request: {requests: [{text: x}]}}
"""
CELL = "@inference.cells.{@cell.model}.{@cell.config.name}.{@cell.test}"


@pytest.fixture
def served(workspace: Workspace) -> Workspace:
    """Return a workspace with the project."""
    workspace.write(
        {
            "projects/served/orchestration.py": ORCHESTRATION,
            "command_args/served.yaml.j2": "",
            "worker.py": WORKER,
            "cases.yaml": CASES,
        }
    )
    return workspace


def configure(
    served: Workspace, table: Mapping[str, str], checks: Sequence[Any] = ({"check": "answers"},), **changes: Any
) -> None:
    """Write a configuration with two configs of a model. `table` has the answer of each data type."""
    config = {"deployment_framework": "table", "resources": {"gpu": 2}}
    content = {
        "inference": {"image_tag": None, "cells": None},
        "frameworks": {"table": {"command": ["serve", "{dtype_str}", "{grpc_port}"], "protocols": ["fmaas"]}},
        "tests": [
            {
                "model": "org/m",
                "cases": ["cases.yaml"],
                "configs": [{**config, "dtype_str": "float32"}, {**config, "dtype_str": "float16", "num_shard": 2}],
            }
        ],
        "matrix": {
            "axes": {"model": None, "config": None, "test": ["cases", "load"]},
            "zip": [],
            "workload": {
                "command": ["python3", "../src/worker.py", str(served.directory / "table.json")],
                "files": {"worker.py": "worker.py"},
                "write": {f"{name}.json": f"{CELL}.{name}" for name in ("settings", "cases", "expectations")},
                "pod": f"{CELL}.pod",
            },
            "checks": list(checks),
        },
        **changes,
    }
    served.write({"config/served.yaml": json.dumps(content, indent=1), "table.json": json.dumps(dict(table))})


def rows(served: Workspace) -> list[tuple[str, str]]:
    """Return the name and the outcome of each test case of junit.xml below a cell; `remark` if it passed with one."""
    root: Element = ElementTree.fromstring((served.run_directory() / "junit.xml").read_text())
    cases = [case for suite in root.iter("testsuite") if "model=" in (suite.get("name") or "") for case in suite]
    tags = [(case.get("name", ""), case[0].tag if len(case) else "passed") for case in cases]
    return [(name, tag.replace("system-out", "remark")) for name, tag in tags]


def run(served: Workspace) -> Outcome:
    return served.run("project", "run", "served")


@pytest.mark.parametrize("name", ["cases", "expectations"])
def test_a_server_cannot_change_on_this_machine_what_is_expected_of_it(served: Workspace, name: str) -> None:
    forged = {
        "cases": "sent['cases'] = []",
        "expectations": "[each.update(answers=None) for each in sent['expectations'].values()]",
    }
    served.write(
        {"cases.yaml": "- {name: right, request: {requests: [{text: x}]}, response: {responses: [{text: y}]}}"}
    )
    configure(served, {"float32": "y", "float16": "z"})
    with (served.directory / "worker.py").open("a") as worker:
        worker.write(f"file = pathlib.Path('../src/{name}.json')\nsent = json.loads(file.read_text())\n")
        worker.write(f"{forged[name]}\nfile.write_text(json.dumps(sent))\n")
    outcome = run(served)
    assert outcome.exit_code == 1, str(outcome)
    cells = [step for step in served.summary()["steps"] if step["kind"] == "cell"]
    assert {(cell["verdict"], cell["message"]) for cell in cells} == {
        ("failed", f"answers: src/{name}.json is not as it was sent: the workload has changed it")
    }


def test_each_case_is_a_row_of_its_cell(served: Workspace) -> None:
    configure(served, {"float32": "y", "float16": "z"})
    outcome = run(served)
    assert outcome.exit_code == 1, str(outcome)
    verdicts = {step["name"]: step["verdict"] for step in served.summary()["steps"] if step["kind"] == "cell"}
    assert verdicts == {
        "model=org_m,config=table-float32-gpu=2,test=cases": "passed",
        "model=org_m,config=table-float16-num_shard=2,test=cases": "failed",
    }
    assert rows(served) == [
        ("right", "passed"),
        ("right (stream)", "passed"),
        ("sharded", "remark"),  # the case expects nothing
        ("sharded (stream)", "remark"),
        ("right", "failure"),
        ("right (stream)", "failure"),
        ("sharded", "skipped"),
    ]
    assert "the text differs at character 1: 'z', expected 'y'" in outcome.stdout


@pytest.mark.parametrize(("answers", "verdict"), [("yy", "passed"), ("yz", "failed")])
def test_the_answers_of_two_configs_are_compared_without_expected_texts(
    served: Workspace, answers: str, verdict: str
) -> None:
    served.write({"cases.yaml": "- {name: any, request: {requests: [{text: x}]}}"})
    same = {"check": "same_answers", "to": {"config": "table-float32-gpu=2"}}
    configure(served, dict(zip(("float32", "float16"), answers, strict=True)), checks=[{"check": "answers"}, same])
    outcome = run(served)
    assert outcome.exit_code == (0 if verdict == "passed" else 1), str(outcome)
    verdicts = [step["verdict"] for step in served.summary()["steps"] if step["kind"] == "cell"]
    assert verdicts == ["passed", verdict]
    outcomes = ["remark"] * 4 + ["passed" if verdict == "passed" else "failure"] * 2
    assert sorted(row[1] for row in rows(served)) == sorted(outcomes)


def test_a_resumed_run_compares_with_the_answers_of_the_first_session(served: Workspace) -> None:
    served.write({"cases.yaml": "- {name: any, request: {requests: [{text: x}]}}"})
    same = {"check": "same_answers", "to": {"config": "table-float32-gpu=2"}}
    configure(served, {"float32": "y", "float16": "z"}, checks=[{"check": "answers"}, same])
    assert run(served).exit_code == 1
    served.write({"table.json": '{"float32": "never asked again", "float16": "y"}'})
    outcome = served.run("project", "resume", str(served.run_directory()), "--failed")
    assert outcome.exit_code == 0, str(outcome)


def test_a_run_with_changed_cases_is_not_resumed(served: Workspace) -> None:
    configure(served, {"float32": "y", "float16": "z"})
    assert run(served).exit_code == 1
    served.write({"cases.yaml": CASES.replace("text: y", "text: z")})
    outcome = served.run("project", "resume", str(served.run_directory()), "--failed")
    assert outcome.exit_code == 2
    assert "inference.cells" in outcome.stderr


def test_an_impossible_config_starts_nothing(served: Workspace) -> None:
    configure(served, {}, frameworks={"tables": {"url": "http://x", "protocols": ["openai"]}})
    outcome = run(served)
    assert outcome.exit_code == 2
    assert outcome.stderr.count("unknown framework `table`: did you mean tables?") == 2
    assert served.runs() == []
