"""Null stands for the default of each field of a block, so that a preset or an override can set the field."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any, get_args

import pytest
from pydantic import BaseModel, RootModel, ValidationError

from tests.unit.config.conftest import Load
from toolbox.config import contract
from toolbox.config.configuration import Configuration
from toolbox.ground.model import null_fields
from toolbox.ground.model.errors import ConfigurationError
from toolbox.ground.system import places
from toolbox.matrix import plan, planner, targets
from toolbox.matrix.matrix_block import MatrixBlock
from toolbox.matrix.plan import Selection
from toolbox.orchestration import projects

OWN_MEANING = {"request_cpu", "request_memory_gb", "limit_cpu", "limit_memory_gb", "gpu"}
"""Fields of the resources of a server, in which null means no request and no limit."""


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models that a type contains."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from models_in(argument)


def all_models() -> list[type[BaseModel]]:
    """Return the models of all contracts of Topgallant and of its projects, with the models inside them."""
    with places.pinned(None):
        folders = {contract.LIBRARY, plan.CONTRACTS}
        folders |= {folder for name in places.projects() for folder in projects.find(name).contracts}
        left = [contract.load(file) for folder in sorted(folders) for file in contract.files(folder).values()]
    models: dict[type[BaseModel], None] = {}
    while left:
        model = null_fields.complete(left.pop())
        if model not in models:
            models[model] = None
            left += [each for field in model.model_fields.values() for each in models_in(field.annotation)]
    return list(models)


def optional_fields() -> list[Any]:
    """Return the fields of all contracts that have a default, as parameters of a test."""
    return [
        pytest.param(model, name, id=f"{model.__module__}.{model.__name__}.{name}")
        for model in all_models()
        for name, field in model.model_fields.items()
        if not field.is_required() and not issubclass(model, RootModel) and name not in OWN_MEANING
    ]


def plan_of(configuration: Configuration) -> dict[str, Any]:
    """Return the plan of a configuration, as in `plan.json`."""
    configuration.check()
    found = targets.read(configuration)
    made = planner.make(configuration, found, Selection(), root=Path.cwd(), today=dt.date(2026, 6, 15)).as_json()
    for cell in made["cells"]:
        del cell["fingerprint"]  # of the texts
    return {**made, "targets": {name: target.description for name, target in found.items()}}


def outcome(model: type[BaseModel], block: dict[str, Any]) -> Any:
    """Return a block as its model, or its faults."""
    try:
        return null_fields.validate(model, block)
    except ValidationError as error:
        return [(fault["loc"], fault["type"], fault["msg"]) for fault in error.errors()]


@pytest.mark.parametrize(("model", "name"), optional_fields())
def test_null_is_the_default_of_each_field_of_each_contract(model: type[BaseModel], name: str) -> None:
    key = model.model_fields[name].alias or name
    assert outcome(model, {key: None}) == outcome(model, {})
    assert null_fields.accepts_null(model, (key,))


def test_there_are_many_fields() -> None:
    assert len(optional_fields()) > 100


def test_a_plan_is_the_same_if_each_optional_field_of_the_matrix_is_null(load: Load) -> None:
    nulls = ", ".join(f"{name}: null" for name in MatrixBlock.model_fields if name != "workload")
    text = f"matrix: {{{nulls}, workload: {{command: [a], env: null, files: null, collect: null, write: null}}}}\n"
    configuration = load(text, contracts=[plan.CONTRACTS])
    configuration.check()
    expected = load("matrix: {workload: {command: [a]}}\n", contracts=[plan.CONTRACTS])
    assert configuration.block("matrix", MatrixBlock) == expected.block("matrix", MatrixBlock)


@pytest.mark.parametrize(
    "text",
    [
        "matrix: {workload: null}",
        "matrix: {workload: {command: null}}",
        "matrix: {workload: {command: [a], files: {x: null}}}",
        "matrix: {workload: {command: [a]}, pools: {gpu: null}}",
        "matrix: {workload: {command: [a]}, xfail: [{when: {}, reason: null, owner: o, expires: 2027-01-31}]}",
        "matrix: {workload: {command: [a]}, xfail: [null]}",
        "targets: {here: null}",
    ],
)
def test_null_is_a_fault_where_there_is_no_default(load: Load, text: str) -> None:
    with pytest.raises(ConfigurationError):
        load(text, contracts=[plan.CONTRACTS]).check()


def test_another_fault_is_reported_although_a_null_is_a_default(load: Load) -> None:
    with pytest.raises(ConfigurationError, match=r"config.yaml:2: `matrix.jobs` must be .*'many'$"):
        load(
            "matrix:\n  jobs: many\n  timeouts: null\n  workload: {command: [a]}\n", contracts=[plan.CONTRACTS]
        ).check()


def test_nulls_of_checks_metrics_and_targets_are_their_defaults(load: Load) -> None:
    text = """
        targets: {{here: {{backend: ssh, host: h{port}}}}}
        matrix:
          workload: {{command: [a]}}
          metrics: {{loss: {{source: yaml_file, file: f, path: p{source}}}}}
          checks: [{{check: metric, metric: loss, upper: 1{check}}}]
    """
    nulls = {
        "port": ", python: null",
        "source": ", warmup: null, unit: null, when: null",
        "check": ", lower: null, when: null",
    }
    made = [
        plan_of(load(dedent(text.format_map(each)), contracts=[plan.CONTRACTS]))
        for each in (nulls, dict.fromkeys(nulls, ""))
    ]
    assert made[0] == made[1]


DOCUMENT = """
clusters: {c: {create: {command: [a], destroy: [b]}}}
targets: {here: {}}
matrix:
  metrics: {loss: {source: yaml_file}}
  checks: [{check: metric, metric: loss}]
  workload: {command: [a], env: {}}
"""


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("matrix.timeouts", "add the field to config.yaml, as in `matrix: {timeouts: null}`"),
        ("matrix.timeouts.run", "add the field to config.yaml, as in `matrix: {timeouts: {run: null}}`"),
        ("matrix.axes.y", "add the field to config.yaml, as in `matrix: {axes: {y: null}}`"),
        ("matrix.metrics.loss.warmup", "as in `matrix: {metrics: {loss: {warmup: null}}}`"),
        ("matrix.checks[0].lower", "add `lower: null` to `matrix.checks[0]` in config.yaml:5"),
        ("clusters.c.lease.ttl", "as in `clusters: {c: {lease: {ttl: null}}}`"),
        ("ansible_warm", "as in `ansible_warm: null`"),
        ("own.a", "as in `own: {a: null}`"),
        ("matrix.metrics.other", "as in `matrix: {metrics: {other: VALUE}}`"),
        ("matrix.pools.gpu", "as in `matrix: {pools: {gpu: VALUE}}`"),
        ("targets.gpu", "as in `targets: {gpu: VALUE}`"),
        ("matrix.skipp", "only existing fields can be set: `skipp` is an unknown field: did you mean skip or zip?"),
        ("matrix.timeouts.rum", "`rum` is an unknown field: did you mean run?"),
        ("matrix.workload.environ", "`environ` is an unknown field: did you mean env?"),
        ("targets.gpu.env", "add the whole entry `targets.gpu`, with all its fields"),
        ("own.a[0].b", "add `own: {a: VALUE}` to config.yaml"),
    ],
)
def test_the_hint_to_add_a_field_shows_what_the_contract_accepts(load: Load, path: str, hint: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(DOCUMENT.lstrip("\n"), overrides={path: 1}, contracts=[plan.CONTRACTS])
    assert str(caught.value).endswith(hint)
