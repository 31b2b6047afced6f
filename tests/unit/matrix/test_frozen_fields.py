"""A change of the configuration that planned cells would not get is found, through references of any kind."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from toolbox.config.configuration import Configuration, Request
from toolbox.matrix import frozen_fields, plan, planner, targets
from toolbox.matrix.plan import Plan, Selection

DOCUMENT = """
    p: {value: old, other: x, whole: {a: 1}}
    via: {x: "@p.value", all: "@p.whole"}
    models: {small: {path: s, size: "@p.other"}, large: {path: l}}
    secrets: {dir: {env_key: TEST_SECRETS}, token: one}
    training: {steps: 5}
    unused: [1]
    targets: {here: {cost_per_hour: 1, labels: ["@via.x"]}}
    matrix:
      axes: {model: [small], training.steps: [1, 2]}
      target: here
      workload:
        command: [run, "--steps={@training.steps}", "--text={@via.x}"]
        env: {V: "@p.value", ALL: "{@via.all}", MODEL: "@models.{@cell.model}.path", TOKEN: "*$@secrets.token"}
"""
Loaded = tuple[Configuration, Plan]


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loaded:
    """Return a configuration and the plan of its matrix."""
    monkeypatch.setenv("TEST_SECRETS", str(tmp_path))
    for name, content in {"one": "one", "two": "two", "same": "one"}.items():
        (tmp_path / name).write_text(content)
    file = tmp_path / "config.yaml"
    file.write_text(dedent(DOCUMENT))
    configuration = Configuration.load(Request(file, contracts=(plan.CONTRACTS,)))
    today = dt.date(2026, 6, 15)
    made = planner.make(configuration, targets.read(configuration), Selection(), root=tmp_path, today=today)
    return configuration, made


Changed = Callable[[str, object], list[str]]


@pytest.fixture
def changed(loaded: Loaded) -> Changed:
    """Return a function that returns the fields of the cells that a change of a field would reach too late."""
    configuration, made = loaded
    return lambda path, value: frozen_fields.changed(
        configuration, configuration.replaced(path, value, layer="test"), made
    )


ENV = "matrix.workload.env"


@pytest.mark.parametrize(
    ("path", "value", "fields"),
    [
        ("p.value", "new", ["matrix.workload.command[2]", f"{ENV}.V", "targets.here.labels[0]"]),
        ("p", {"value": "old", "other": "x", "whole": {"a": 2}}, [f"{ENV}.ALL"]),
        ("p.whole.a", 2, [f"{ENV}.ALL"]),
        ("via.x", "new", ["matrix.workload.command[2]", "targets.here.labels[0]"]),
        ("models.small.path", "new", [f"{ENV}.MODEL"]),
        ("models", {"small": {"path": "new", "size": "x"}}, [f"{ENV}.MODEL"]),
        ("secrets.token", "two", [f"{ENV}.TOKEN"]),
        ("secrets.token", "missing", [f"{ENV}.TOKEN"]),
        ("matrix.axes.model", ["small", "large"], ["matrix.axes.model"]),
        ("targets.here.cost_per_hour", 2, ["targets.here.cost_per_hour"]),
        ("targets.here.cost_per_hour", 1.0, ["targets.here.cost_per_hour"]),
    ],
)
def test_a_change_that_cells_would_not_get_names_their_fields(
    changed: Changed, path: str, value: object, fields: list[str]
) -> None:
    assert changed(path, value) == fields


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("p.value", "old"),
        ("p.other", "new"),
        ("models.large.path", "new"),
        ("models.small.size", 1),
        ("unused", [2]),
        ("secrets.token", "same"),
    ],
)
def test_a_change_that_no_cell_uses_is_free(changed: Changed, path: str, value: object) -> None:
    assert changed(path, value) == []


def test_a_matrix_that_was_never_planned_cannot_be_added(loaded: Loaded) -> None:
    after, _ = loaded
    before = after.replaced("matrix", None, layer="test")
    assert frozen_fields.changed(before, after, None)
    assert frozen_fields.changed(before, before.replaced("p.value", "new", layer="test"), None) == []
