"""A configuration is validated by the contracts of its blocks, and all faults are reported at once."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.unit.config.conftest import Load
from toolbox.config import contract
from toolbox.config.contracts import results
from toolbox.ground.model.errors import ConfigurationError
from toolbox.ground.system import places

TRAINING = '''
"""A contract of a project."""
from typing import Annotated, Literal
from pydantic import BaseModel, ConfigDict, Field, JsonValue

class Small(BaseModel):
    kind: Literal["small"]
    width: int

class Large(BaseModel):
    kind: Literal["large"]
    depth: int

class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")
    enabled: bool = True
    steps: int = Field(gt=0)

class Contract(BaseModel):
    model_config = ConfigDict(extra="forbid")
    settings: Strict
    models: dict[str, Annotated[Small | Large, Field(discriminator="kind")]] = {}
    sizes: list[int] | None = None
    either: list[int] | dict[str, int] | None = None
    parameters: dict[str, JsonValue] = {}
    label: str = ""
'''


@pytest.fixture
def contracts(tmp_path: Path) -> list[Path]:
    """Return the folder with a project's contracts, one of which is for `tests.training`."""
    folder = tmp_path / "contracts"
    folder.mkdir()
    (folder / "tests__training.py").write_text(TRAINING)
    (folder / "_shared.py").write_text("raise RuntimeError('no contract')\n")
    return [folder]


def faults(load: Load, contracts: list[Path], text: str, **request: Any) -> list[str]:
    """Return the lines of the error that a configuration raises."""
    with pytest.raises(ConfigurationError) as caught:
        load(text, contracts=contracts, **request).check()
    return str(caught.value).split("\n  ")


@pytest.mark.parametrize(("value", "shown"), [("0", "0"), ("no way", "'no way'"), ("{warm: true}", "{'warm': True}")])
def test_the_switch_of_the_helpers_of_ansible_is_true_or_false(load: Load, value: str, shown: str) -> None:
    expected = f"config.yaml:1: `ansible_warm` must be a valid boolean, not {shown}"
    assert faults(load, [], f"ansible_warm: {value}")[1:] == [expected]


GOOD = """\
tests:
  training:
    settings: {steps: 3}
    models:
      a: {kind: small, width: 8}
    sizes: "@other.sizes"
other: {sizes: [1, 2]}
"""


def test_a_valid_block_is_not_reported(load: Load, contracts: list[Path]) -> None:
    load(GOOD, contracts=contracts).check()


@pytest.mark.parametrize("text", ["a: 1\n", "tests: {}\n", "tests: {other: 1}\n", "tests: null\n"])
def test_a_missing_block_is_not_an_error(load: Load, contracts: list[Path], text: str) -> None:
    load(text, contracts=contracts).check()


BAD = """\
secrets:
  dir: {name: 5}
tests:
  training:
    settings:
      enabeld: true
      steps: -1
    models:
      a: {kind: small, width: wide}
      b.c:
        kind: large
    sizes:
    - 1
    - two
    either: text
"""


NO_INTEGER = "must be a valid integer"


def test_all_faults_are_named_at_once_each_with_its_line(load: Load, contracts: list[Path]) -> None:
    assert faults(load, contracts, BAD) == [
        "8 faults in the configuration:",
        "config.yaml:2: `secrets.dir.name` must be a valid string, not 5",
        "config.yaml:7: `tests.training.settings.steps` must be greater than 0, not -1",
        "config.yaml:6: `tests.training.settings.enabeld` is an unknown field: did you mean enabled?",
        f"config.yaml:9: `tests.training.models.a.width` {NO_INTEGER}, not 'wide'",
        'config.yaml:10: `tests.training.models["b.c"].depth` is missing',
        f"config.yaml:14: `tests.training.sizes[1]` {NO_INTEGER}, not 'two'",
        "config.yaml:15: `tests.training.either` must be a valid list, not 'text'",
        "config.yaml:15: `tests.training.either` must be a mapping, not 'text'",
    ]


def test_a_single_fault_is_one_line(load: Load, contracts: list[Path]) -> None:
    text = "tests: {training: {settings: {steps: 1}, size: []}}\n"
    assert faults(load, contracts, text) == [
        "a fault in the configuration:",
        "config.yaml:1: `tests.training.size` is an unknown field: did you mean sizes?",
    ]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("parameters: {a: [2026-11-21]}", '.parameters.a[0]` is the date 2026-11-21: write "2026-11-21" for the text'),
        ("label: 2026-11-21", '.label` is the date 2026-11-21: write "2026-11-21" for the text'),
        ("sizes: [2026-11-21]", ".sizes[0]` must be a valid integer, not 2026-11-21"),
    ],
)
def test_an_unquoted_date_is_named_as_a_date(load: Load, contracts: list[Path], fields: str, message: str) -> None:
    (_, fault) = faults(load, contracts, f"tests: {{training: {{settings: {{steps: 1}}, {fields}}}}}\n")
    assert fault.endswith(message)


def test_a_project_of_an_installed_package_has_its_own_contracts(
    load: Load, contracts: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "toolbox"
    monkeypatch.setattr(places, "PACKAGE", package)
    bundled = package / "bundled/projects/one/contracts"
    bundled.parent.mkdir(parents=True)
    contracts[0].rename(bundled)
    assert contract.in_library(package / "matrix/contracts")
    assert faults(load, [bundled], "tests: {training: null}\n")[1:] == [
        "config.yaml:1: `tests.training` must be a mapping, not null"
    ]


@pytest.mark.parametrize("block", ["null", "5", "[1]", "text"])
def test_a_block_that_is_not_a_mapping_is_refused(load: Load, contracts: list[Path], block: str) -> None:
    head, fault = faults(load, contracts, f"tests:\n  training: {block}\n")
    assert head == "a fault in the configuration:"
    assert fault.startswith("config.yaml:2: `tests.training` must be ")


def test_a_wrong_value_is_located_in_the_preset(load: Load, contracts: list[Path]) -> None:
    text = f"{GOOD}ci_presets:\n  bad:\n    tests.training.settings.steps: 0\n"
    _, fault = faults(load, contracts, text, presets=["bad"])
    assert fault == "config.yaml:10: `tests.training.settings.steps` must be greater than 0, not 0"


def test_a_wrong_value_is_reported_for_the_referring_field(load: Load, contracts: list[Path]) -> None:
    _, fault = faults(load, contracts, GOOD.replace("[1, 2]", "many"))
    assert fault == "config.yaml:6: `tests.training.sizes` must be a valid list, not 'many'"


def test_a_long_value_is_truncated(load: Load, contracts: list[Path]) -> None:
    _, fault = faults(load, contracts, f"tests: {{training: {'x' * 200}}}\n")
    assert len(fault) < 160


def test_the_lists_of_presets_have_a_contract(load: Load) -> None:
    assert faults(load, [], "ci_presets: {names: 5, name: 6}\n") == [
        "3 faults in the configuration:",
        "config.yaml:1: `ci_presets.names` must be a valid list, not 5",
        "config.yaml:1: `ci_presets.names` must be a valid string, not 5",
        "config.yaml:1: `ci_presets.name` must be a valid string, not 6",
    ]


def test_a_wrong_length_is_reported_as_a_rule(load: Load) -> None:
    assert faults(load, [], "clusters: {lab: {pool: []}}\nresults: {currency: ''}\n")[1:] == [
        "config.yaml:1: `clusters.lab.pool` must have at least 1 item, not []",
        "config.yaml:2: `results.currency` must have at least 1 character, not ''",
    ]


@pytest.mark.parametrize("block", ["{}", "{names: null, to_apply: [p], p: {a: 1}, q: null, r: text}"])
def test_all_forms_of_to_apply_are_valid(load: Load, block: str) -> None:
    load(f"ci_presets: {block}\na: 1\n").check()


def test_a_secret_is_not_shown_in_a_fault(load: Load, contracts: list[Path]) -> None:
    text = GOOD.replace("steps: 3", 'steps: "*$@secrets.f"') + "secrets: {dir: {env_key: NOT_SET}, f: token}\n"
    _, fault = faults(load, contracts, text)
    assert fault == "config.yaml:3: `tests.training.settings.steps` must be a valid integer, not ***"


def test_a_block_is_validated_once(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    validate = Mock(wraps=results.Contract.model_validate)
    monkeypatch.setattr(results.Contract, "model_validate", validate)
    configuration = load("results: {record: false}\n")
    configuration.check()
    assert configuration.block("results", results.Contract) == results.Contract(record=False)
    validate.assert_called_once_with({"record": False})


@pytest.mark.parametrize("text", ["a: 1\n", "results: null\n", "results: {}\n"])
def test_a_block_that_is_missing_or_null_has_no_fields(load: Load, text: str) -> None:
    assert load(text).block("results", results.Contract) == results.Contract()


def test_a_block_can_be_a_reference(load: Load) -> None:
    configuration = load("a: '@b'\nb: {results: {currency: EUR}}\n")
    assert configuration.block("a.results", results.Contract).currency == "EUR"


def test_a_block_is_validated_again_after_a_change(load: Load) -> None:
    configuration = load("results: {record: true}\n")
    changed = configuration.replaced("results.record", False, layer="a test")
    assert [each.block("results", results.Contract).record for each in (configuration, changed)] == [True, False]


def test_the_contracts_of_the_library_are_found_by_their_location() -> None:
    assert {("secrets",), ("ci_presets",)} <= contract.files(contract.LIBRARY).keys()


def test_a_contract_of_the_library_is_only_imported_for_its_block(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    imported = Mock(wraps=contract.load)
    monkeypatch.setattr(contract, "load", imported)
    load("results: {record: true}\nci: null\n").check()
    assert [call.args[0].stem for call in imported.call_args_list] == ["results"]


def test_a_contract_of_a_project_replaces_that_of_the_library(load: Load, contracts: list[Path]) -> None:
    (contracts[0] / "secrets.py").write_text("from pydantic import BaseModel\nclass Contract(BaseModel): vault: str\n")
    _, fault = faults(load, contracts, "secrets: {}\n")
    assert fault == "config.yaml:1: `secrets.vault` is missing"


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("ci: {comenters: {teams: [a]}}", "unknown field `comenters`: did you mean `commenters`?"),
        ("secrets: {evn: [TOKEN]}", "`secrets.evn` must be a valid string"),
        ("secrets: {dir: {env_kye: A}}", "unknown field `env_kye`: did you mean `env_key`?"),
        ("ci_presets: {to_aply: [a]}", "`ci_presets.to_aply` must be"),
        ("ci_presets: {to_aply: a}", "unknown field `to_aply`: did you mean `to_apply`?"),
    ],
)
def test_a_misspelt_field_of_a_block_that_has_fields_of_the_project_is_a_fault(
    load: Load, block: str, message: str
) -> None:
    assert message in faults(load, [], f"{block}\n")[1]


@pytest.mark.parametrize(
    "block", ["ci: {ours: [1]}", "secrets: {token: file, other: null}", "ci_presets: {named: {a: 1}}"]
)
def test_fields_of_the_project_are_allowed(load: Load, block: str) -> None:
    load(f"{block}\na: 0\n").check()


def test_a_contract_that_says_nothing_about_other_fields_has_none(load: Load, contracts: list[Path]) -> None:
    (contracts[0] / "mine.py").write_text("from pydantic import BaseModel\nclass Contract(BaseModel): size: int = 1\n")
    _, fault = faults(load, contracts, "mine:\n  siz: 2\n")
    assert fault == "config.yaml:2: `mine.siz` is an unknown field: did you mean size?"


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("class Contract(:\n", "SyntaxError"),
        ("x = 1\n", "no attribute 'Contract'"),
        ("import no_such_module\n", "no_such_module"),
        ("1 / 0\n", "ZeroDivisionError"),
        ("Contract = 5\n", "model_validate"),
        ("class Contract: ...\n", "model_validate"),
        ("raise SystemExit(0)\n", "SystemExit"),
    ],
)
@pytest.mark.parametrize("text", ["broken: {}\n", "a: 1\n"])
def test_a_broken_contract_is_named(load: Load, contracts: list[Path], source: str, fault: str, text: str) -> None:
    file = contracts[0] / "broken.py"
    file.write_text(source)
    with pytest.raises(ConfigurationError, match=fault) as caught:
        load(text, contracts=contracts).check()
    assert str(caught.value).startswith(f"the contract {file} is broken: ")
