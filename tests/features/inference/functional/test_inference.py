"""The project inference serves a model with several configs, and judges every case."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from toolbox.features.inference import model_descriptions, wire_models
from toolbox.features.inference.client.fmaas import generation_pb2 as fmaas
from toolbox.testing import Outcome, Workspace


def run(workspace: Workspace, **overrides: Any) -> Outcome:
    """Run the project with overrides, in which `__` stands for a dot."""
    values = {name.replace("__", "."): value for name, value in overrides.items()}
    workspace.write({"overrides.yaml": yaml.safe_dump({"host.capture_state.enabled": False, **values})})
    return workspace.run("project", "run", "inference", "--overrides=overrides.yaml")


def cells(workspace: Workspace) -> dict[str, tuple[str, str | None]]:
    """Return the verdict and the cause of each cell, by its config."""
    steps = [step for step in workspace.summary()["steps"] if step["kind"] == "cell"]
    return {re.findall("config=([^,]+)", step["name"])[0]: (step["verdict"], step["cause"]) for step in steps}


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
