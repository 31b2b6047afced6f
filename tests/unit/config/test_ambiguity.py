"""A warning names each unquoted scalar that may be meant as text, unless a contract reads it as it is meant."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.unit.config.conftest import Load
from toolbox.config.configuration import Configuration, Request
from toolbox.ground.system import places
from toolbox.matrix import contracts as matrix_contracts
from toolbox.orchestration import projects

MATRIX = Path(str(matrix_contracts.__file__)).parent
CONTRACT = """
import datetime as dt
from pydantic import BaseModel

class Contract(BaseModel):
    day: dt.date | None = None
    share: float = 0
    steps: int = 0
    fast: bool = False
    python: str | float = ""
"""


@pytest.fixture
def contracts(tmp_path: Path) -> list[Path]:
    """Return the folders of contracts: that of the matrix, and one with a contract of the block `tests`."""
    (tmp_path / "contracts").mkdir()
    (tmp_path / "contracts/tests.py").write_text(CONTRACT, encoding="utf-8")
    return [MATRIX, tmp_path / "contracts"]


def test_a_warning_has_the_file_the_line_and_the_quoted_form(load: Load) -> None:
    assert load("a: 1\nmatrix:\n  axes: {python: [3.9, 3.10]}\n").ambiguous_scalars() == [
        'config.yaml:3: `3.10` is read as 3.1: write "3.10" for the text, or 3.1'
    ]


def test_other_numbers_come_first_and_then_fields_of_the_matrix(load: Load) -> None:
    text = "day: 2026-11-21\nmatrix:\n  axes: {fast: [on], ratio: [1:2]}\ntime: 1:30\n"
    lines = load(text).ambiguous_scalars()
    assert [line.split("`")[1] for line in lines] == ["1:2", "1:30", "on", "2026-11-21"]


def test_equal_scalars_of_a_line_give_one_warning(load: Load) -> None:
    assert len(load("a: [1:30, 1:30]\nb: [1:30]\n").ambiguous_scalars()) == 2


@pytest.mark.parametrize(
    "text",
    [
        "matrix: {xfail: [{when: {n: 5}, reason: r, owner: o, expires: 2027-01-31}], axes: {n: [5]}}",
        "targets: {here: {cost_per_hour: 2.40}}",
        "matrix: {checks: [{check: metric, metric: x, lower: 1.10, upper: 2.50}]}",
        "tests: {day: 2027-01-31}",
        "tests: {share: 2.50}",
        "own: {price: 2.40}",
        "tests: {fast: on}",
        "ansible_warm: off",
        "tests: {share: 1}\nci_presets: {big: {tests.share: 2.50}}",
        "tests: {day: null}\nci_presets: {big: {tests: {day: 2027-01-31}}}",
        "tests: '@own'\nown: {}\nlist: ['3.10', \"on\", '1:30']",
    ],
)
def test_what_a_contract_reads_as_it_is_meant_gives_no_warning(load: Load, contracts: list[Path], text: str) -> None:
    assert load(text, contracts=contracts).ambiguous_scalars() == []


@pytest.mark.parametrize(
    ("text", "scalar"),
    [
        ("tests: {steps: 0123}", "0123"),
        ("tests: {share: 1:30}", "1:30"),
        ("tests: {steps: 12_4}", "12_4"),
        ("tests: {python: 3.10}", "3.10"),
        ("tests: {version: 3.10}", "3.10"),
        ("tests: {unknown: 2027-01-31}", "2027-01-31"),
        ("tests: {on: 1}", "on"),
        ("matrix: {axes: {fast: [on]}}", "on"),
        ("tests: {}\nci_presets: {big: {no.python: 3.10}}", "3.10"),
        ("tests: {}\nci_presets: {big: {'tag..b': 3.10}}", "3.10"),
        ("tests: {}\nci_presets: {3.10: {}}", "3.10"),
        ("tests: '@own'\nown: {share: [2.50]}", "2.50"),
        ("tests: {share: [2.50]}", "2.50"),
        ("targets: {here: {env: {CUDA: 12.10}}}", "12.10"),
    ],
)
def test_other_ambiguous_scalars_are_named(load: Load, contracts: list[Path], text: str, scalar: str) -> None:
    (line,) = load(text, contracts=contracts).ambiguous_scalars()
    assert f"`{scalar}` is read as" in line


def test_a_contract_with_secrets_is_asked_without_reading_them(load: Load, contracts: list[Path]) -> None:
    text = """
        secrets: {dir: {env_key: NO_SUCH_VARIABLE}, token: token}
        targets: {here: {backend: kubernetes, env: {TOKEN: "*$@secrets.token"}, cost_per_hour: 2.40}}
    """
    assert load(text, contracts=contracts).ambiguous_scalars() == []


def test_many_dates_are_checked_quickly(load: Load, contracts: list[Path]) -> None:
    entries = ["{when: {n: 5}, reason: r, owner: o, expires: 2027-01-31}"] * 1000
    configuration = load(f"matrix: {{axes: {{n: [5]}}, quarantine: [{', '.join(entries)}]}}", contracts=contracts)
    began = time.process_time()
    assert configuration.ambiguous_scalars() == []
    assert time.process_time() - began < 5


def test_local_files_and_override_files_are_read_too(load: Load, contracts: list[Path], tmp_path: Path) -> None:
    (tmp_path / "config.local.yaml").write_text("own: no\n", encoding="utf-8")
    (tmp_path / "over.yaml").write_text("# a comment\ntests.share: 2.50\nown: yes\n", encoding="utf-8")
    configuration = load("own: 1\ntests: {share: 1}\n", contracts=contracts, override_files=[Path("over.yaml")])
    expected = ["config.local.yaml:1: `no`", "over.yaml:3: `yes`"]
    for found in (configuration, configuration.replaced("own", 2, layer="set_config")):
        assert [line.partition(" is ")[0] for line in found.ambiguous_scalars()] == expected


def test_the_shipped_configurations_give_no_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(places.builtin_root())
    with places.pinned(None):
        for files in map(projects.find, places.projects()):
            request = Request(files.config, contracts=files.contracts)
            assert Configuration.load(request).ambiguous_scalars() == [], files.name
