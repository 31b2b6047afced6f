"""The project inference serves a model with several configs, judges every case, and shows what is wrong."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from toolbox.features.inference import model_descriptions, wire_models
from toolbox.features.inference.client.fmaas import generation_pb2 as fmaas
from toolbox.testing import Outcome, Workspace


def run(workspace: Workspace, *flags: str, **overrides: Any) -> Outcome:
    """Run the project with overrides, in which `__` stands for a dot."""
    values = {name.replace("__", "."): value for name, value in overrides.items()}
    workspace.write({"overrides.yaml": yaml.safe_dump({"host.capture_state.enabled": False, **values})})
    return workspace.run("project", "run", "inference", "--overrides=overrides.yaml", *flags)


def cells(workspace: Workspace) -> dict[str, tuple[str, str | None]]:
    """Return the verdict and the cause of each cell, by its config."""
    steps = [step for step in workspace.summary()["steps"] if step["kind"] == "cell"]
    return {re.findall("config=([^,]+)", step["name"])[0]: (step["verdict"], step["cause"]) for step in steps}


def answers(workspace: Workspace) -> list[dict[str, Any]]:
    """Return the answers of the only cell."""
    (file,) = workspace.run_directory().glob("*__test/*/attempt-1/files/answers.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_the_project_trains_serves_and_judges_all_configs(workspace: Workspace) -> None:
    same = {"check": "same_answers", "to": {"config": "float32"}}
    outcome = run(workspace, matrix__checks=[{"check": "answers"}, same])
    assert outcome.exit_code == 0, str(outcome)
    assert cells(workspace) == dict.fromkeys(("float32", "float16", "two-shards"), ("passed", None))
    models = {path.read_bytes() for path in workspace.run_directory().glob("*__test/*/attempt-1/files/model.npz")}
    assert len(models) == 1  # each server has trained the same model


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("training.heads", 3, "`width` 32 cannot be divided by `heads` 3"),
        ("checkpoint", "~/model.npz", "must match pattern '^[^~]'"),
    ],
)
def test_an_impossible_model_is_refused_before_anything_starts(
    workspace: Workspace, name: str, value: object, fault: str
) -> None:
    overrides = yaml.safe_dump({f"reference_server.{name}": value}, default_flow_style=True)
    outcome = workspace.run("config", "validate", "inference", f"--overrides={overrides}")
    assert outcome.exit_code == 2, str(outcome)
    assert fault in outcome.stderr


def test_a_wrong_token_is_shown_between_its_neighbours(workspace: Workspace) -> None:
    assert run(workspace, "--cells=*config=float32,*").exit_code == 0
    answer = next(each for each in answers(workspace) if each["case"].endswith("/Greedy"))
    case: dict[str, Any] = {
        "name": "Wrong",
        "request": {
            "requests": [{"text": "the "}],
            "params": {"stopping": {"maxNewTokens": 8}, "response": {"generatedTokens": True, "topNTokens": 2}},
        },
        "response": {
            "responses": [{"tokens": [{"text": each["text"]} for each in answer["generations"][0]["tokens"]]}]
        },
    }
    case["response"]["responses"][0]["tokens"][6]["text"] = "~"
    other = Workspace(workspace.directory / "other", {"cases.yaml": yaml.safe_dump([case])})
    names = {"tests[0].cases": [str(other.directory / "cases.yaml")]}
    outcome = run(other, "--cells=*config=float32,*", **names)
    assert outcome.exit_code == 1, str(outcome)
    for name in ("Wrong", "Wrong (stream)"):
        assert re.search(rf"cases\.{re.escape(name)}: token 7 is .*, expected '~'", outcome.stdout)
    assert (other.run_directory() / "junit.xml").read_text().count("&gt;&gt;'~'&lt;&lt;") == 2


def test_a_server_that_is_never_ready_is_an_error_of_the_infrastructure(workspace: Workspace) -> None:
    outcome = run(
        workspace,
        "--cells=*config=float32,*",
        frameworks__reference__command=["sleep", "100", "{port}", "{grpc_port}"],
        frameworks__reference__ready__timeout=1,
        matrix__retries={"infrastructure": 0},
    )
    assert outcome.exit_code == 3, str(outcome)
    assert cells(workspace) == {"float32": ("error", "infrastructure")}


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (wire_models.Generate, fmaas.BatchedGenerationRequest),
        (wire_models.Parameters, fmaas.Parameters),
        (wire_models.Sampling, fmaas.SamplingParameters),
        (wire_models.Stopping, fmaas.StoppingCriteria),
        (wire_models.ResponseOptions, fmaas.ResponseOptions),
        (wire_models.Decoding, fmaas.DecodingParameters),
        (wire_models.Tokenize, fmaas.BatchedTokenizeRequest),
        (wire_models.GenerationResponse, fmaas.GenerationResponse),
        (wire_models.TokenizeResponse, fmaas.TokenizeResponse),
        (model_descriptions.ModelInfoRequest, fmaas.ModelInfoRequest),
        (model_descriptions.ModelInfo, fmaas.ModelInfoResponse),
    ],
)
def test_case_files_have_the_fields_of_the_messages(model: Any, message: Any) -> None:
    assert set(model.model_fields) == set(message.DESCRIPTOR.fields_by_name)
