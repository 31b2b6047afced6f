"""Presets have the same effect as TOPSAIL's `apply_preset`: the same values, the same order, the same shared objects.

Documents are compared as YAML, in which a container that occurs several times has an anchor.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.config import topsail
from tests.unit.config.conftest import Load
from toolbox.config import document, presets
from toolbox.config.configuration import Configuration
from toolbox.ground.model.errors import ConfigurationError

FIXTURE = (Path(__file__).parent / "data" / "topsail_like.yaml").read_text(encoding="utf-8")
KEYS = ["a", "b", "c-d", "x.y", 'q"t', "it's", "w z", "8k"]
NAMES = ["p0", "p1", "p2", "p3"]
REFUSED = "refused"


def quoted(key: str) -> str:
    """Return a key in brackets, as jsonpath-ng writes it."""
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    return f'["{escaped}"]'


def path_to(keys: Sequence[str | int]) -> str:
    """Return the path to keys in the format of a preset's entry."""
    text = "$"
    for key in keys:
        if isinstance(key, int):
            text += f"[{key}]"
        else:
            text += f".{key}" if re.fullmatch(r"[a-z]\w*", key) else quoted(key)
    return text.removeprefix("$.")


def all_paths(value: Any, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return the paths of all items in a value."""
    items: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    return [path for key, item in items for path in [(*at, key), *all_paths(item, (*at, key))]]


scalars = st.one_of(st.none(), st.booleans(), st.integers(0, 9), st.sampled_from(["text", "1.10", "@a", "{@a.b} x"]))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.dictionaries(st.sampled_from(KEYS), inner, max_size=3), st.lists(inner, max_size=2)),
    max_leaves=8,
)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Draw the YAML of a document with presets, many of which change values that other presets have set."""
    root: dict[str, Any] = draw(st.dictionaries(st.sampled_from(KEYS), values, min_size=1, max_size=4))
    pool = draw(st.lists(values, min_size=1, max_size=3))  # an object that occurs several times has an anchor in YAML
    known = [*all_paths(root), ("nothing",), ("a", "nothing")]
    block: dict[str, Any] = {"names": None}
    for index, name in enumerate(NAMES):
        entries: dict[str, Any] = {}
        for _ in range(draw(st.integers(0, 4))):
            if index and draw(st.integers(0, 5)) == 0:
                entries["extends"] = draw(st.lists(st.sampled_from(NAMES[:index]), max_size=2))
                continue
            at = draw(st.sampled_from(known))
            value = draw(st.one_of(values, st.sampled_from(pool)))
            if isinstance(at[-1], int) and isinstance(value, list):
                continue  # jsonpath-ng 1.7 splits the list; earlier versions and Topgallant replace the item
            entries[path_to(at)] = value
            known += [(*at, *rest) for rest in all_paths(value)]  # the next preset may change these values
        block[name] = entries
        known += [("ci_presets", name, key) for key in entries if key != "extends"]
    items = list(root.items())
    middle = draw(st.integers(0, len(items)))
    return yaml.dump(dict([*items[:middle], ("ci_presets", block), *items[middle:]]), sort_keys=False)


def by_topsail(text: str, names: Sequence[str]) -> str:
    """Return a document after TOPSAIL has applied presets, with the names of the applied presets, as YAML."""
    root = yaml.safe_load(text)
    try:
        applied = topsail.apply(root, names)
    except topsail.NoSuchField:
        return REFUSED
    return yaml.dump([root, applied], sort_keys=False)


def by_us(text: str, names: Sequence[str]) -> str:
    """Return a document after Topgallant has applied presets, with the names of the applied presets, as YAML."""
    found = document.parse(text, source="f")
    try:
        for name in names:
            presets.apply(found, name)
    except ConfigurationError:
        return REFUSED
    root = Configuration(found).written("$")
    applied = root["ci_presets"].pop("names") or []
    return yaml.dump([root, applied], sort_keys=False)


@settings(deadline=None, derandomize=True, max_examples=300)
@given(documents(), st.lists(st.sampled_from(NAMES), max_size=5))
def test_presets_give_the_same_result_as_topsail(text: str, names: list[str]) -> None:
    assert by_us(text, names) == by_topsail(text, names)


SHARED = """
a: null
b: {m: {k: 0}}
ci_presets:
  names: null
  whole: {a: {k: 1, l: {n: 1}}}
  inside: {a.k: 2, a.l.n: [3]}
  other: {a: {k: 5}}
  anchored: {a: &m {k: 1}, b.m: *m}
  one_of_two: {b.m.k: 7}
  swap: {'ci_presets.whole["a"]': {k: changed}, 'ci_presets.whole["a"].k': again}
  itself: {'ci_presets.itself["a"]': late, a: early}
  merged: {a: {<<: &base {k: 1, z: 0}, k: 2}, b.m: *base}
"""


@pytest.mark.parametrize(
    "names",
    [
        ["whole", "inside", "whole"],
        ["whole", "inside", "other", "whole"],
        ["anchored", "one_of_two"],
        ["anchored", "one_of_two", "anchored", "inside"],
        ["swap", "whole"],
        ["whole", "swap", "whole"],
        ["itself", "itself"],
        ["merged", "one_of_two", "merged"],
    ],
    ids="+".join,
)
def test_presets_share_mappings_as_in_topsail(names: list[str]) -> None:
    assert by_us(SHARED, names) == by_topsail(SHARED, names)


def test_a_shared_mapping_keeps_changes_of_later_presets(load: Load) -> None:
    configuration = load(SHARED, presets=["whole", "inside", "other", "whole"])
    assert configuration.get("a") == {"k": 2, "l": {"n": [3]}}


@pytest.mark.parametrize(
    "names",
    [
        [],
        ["light"],
        ["gpu", "light"],
        ["light", "gpu"],
        ["fms"],
        ["fms", "light"],
        ["fms_multi"],
        ["tweak_light", "fms"],
        ["fms_multi", "tweak_light", "fms_multi"],
        ["dgx_single_model", "fms_multi", "light", "gpu"],
    ],
    ids="+".join,
)
def test_a_configuration_of_topsail_loads_unchanged(load: Load, names: list[str]) -> None:
    expected = yaml.safe_load(FIXTURE)
    applied = topsail.apply(expected, names)
    written = load(FIXTURE, presets=names).written("$")
    assert (written["ci_presets"].pop("names") or []) == applied
    assert json.dumps(written) == json.dumps(expected)


def test_a_configuration_of_topsail_resolves(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "brew.registry.redhat.io.token").write_text("t0ken\n")
    monkeypatch.setenv("PSAP_ODS_SECRET_PATH", str(tmp_path))
    configuration = load(FIXTURE, presets=["fms_multi"])
    configuration.check()
    assert configuration.get("rhods.operator") == {
        "image": "brew.registry.redhat.io/rh-osbs/iib",
        "tag": "v1.33",
        "catalog.tag": "v2.10",
        "full": "brew.registry.redhat.io/rh-osbs/iib:v1.33",
    }
    assert configuration.get("tests.fine_tuning.test_settings.name") == "fms-bigscience/bloom@sha-run"
    assert configuration.get("tests.fine_tuning.test_settings.workdir") == "/mnt/fine-tuning-testing/@data"
    assert configuration.get("tests.fine_tuning.cleanup.taint") == {"key": "only-workload-pods", "value": "yes"}
    assert configuration.get("rhods.pull_token").reveal() == "t0ken"
    assert configuration.get("ci_presets.names") == ["fms_multi", "fms", "dgx_single_model", "gpu", "light"]
