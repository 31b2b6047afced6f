"""Blocks that the library shares with projects are valid in the forms of TOPSAIL and of the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.unit.config.conftest import Load
from toolbox.ground.model.errors import ConfigurationError
from toolbox.ground.system import places
from toolbox.matrix import plan

TOPSAIL = Path(__file__).parent / "data" / "topsail_shapes.yaml"
DOCS = places.builtin_root() / "docs"


def examples(page: str) -> list[str]:
    """Return the YAML examples of a page of the documentation."""
    return re.findall(r"^```yaml\n(.*?)^```$", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_a_configuration_in_the_shapes_of_topsail_is_valid(load: Load) -> None:
    load(TOPSAIL.read_text(encoding="utf-8"), contracts=[plan.CONTRACTS]).check()


@pytest.mark.parametrize("preset", yaml.safe_load(TOPSAIL.read_text(encoding="utf-8"))["ci_presets"]["all"]["extends"])
def test_a_preset_may_change_fields_of_the_project(load: Load, preset: str) -> None:
    load(TOPSAIL.read_text(encoding="utf-8"), contracts=[plan.CONTRACTS], presets=[preset]).check()


@pytest.mark.parametrize("text", examples("clusters.md"), ids=lambda text: text.partition("\n")[0])
def test_the_examples_of_the_page_on_clusters_are_valid(load: Load, text: str) -> None:
    load(text, contracts=[plan.CONTRACTS]).check()


@pytest.mark.parametrize("fields", ["", "  region: lab\n", "  machineset: {type: m6i.2xlarge}\n  is_metal: false\n"])
def test_a_documented_cluster_may_have_fields_of_the_project(load: Load, fields: str) -> None:
    text = f"clusters:\n  cleanup_on_exit: false\n  sut:\n    existing: {{}}\n{fields.replace('  ', '    ')}"
    load(text, contracts=[plan.CONTRACTS]).check()


@pytest.mark.parametrize(
    "block", ["ci_presets", "clusters", "matrix", "notifications", "results", "secrets", "targets"]
)
def test_a_block_may_be_null_for_a_preset_to_fill_in(load: Load, block: str) -> None:
    load(f"{block}:\n", contracts=[plan.CONTRACTS]).check()


@pytest.mark.parametrize("fields", ["directory: /data", "upload: {bucket: x}", "recording_of: x"])
def test_a_block_of_results_without_known_fields_belongs_to_the_project(load: Load, fields: str) -> None:
    load(f"results: {{{fields}}}\n").check()


@pytest.mark.parametrize("fields", ["databse: x.db", "records: false", "record: true, directory: /data"])
def test_a_misspelled_field_of_results_is_reported(load: Load, fields: str) -> None:
    with pytest.raises(ConfigurationError, match=r"config\.yaml:1: `results\.\w+` is an unknown field"):
        load(f"results: {{{fields}}}\n").check()


@pytest.mark.parametrize("fields", ["slack: '#channel'", "mail: {to: a@lab}", "retries: 3", "team: null"])
def test_an_entry_of_notifications_without_a_notifier_belongs_to_the_project(load: Load, fields: str) -> None:
    load(f"notifications: {{{fields}}}\n").check()
