"""Presets change a configuration in order, and faulty presets are reported."""

import pytest

from tests.unit.config.conftest import Load
from toolbox.config import document, presets
from toolbox.ground.model.errors import ConfigurationError

TEXT = """\
ci_presets:
  light: {a.b: 1}
  heavy:
    a.b: 2
    extends: [light]
    a.c: 3
  last:
    extends: light
    a.b: 4
  whole: {a: {z: 26}}
  nothing: null
  empty: {}
  8: {a.b: 8}
a: {b: 0, c: 0}
"""


@pytest.mark.parametrize(
    ("presets", "value"),
    [
        ([], {"b": 0, "c": 0}),
        (["light"], {"b": 1, "c": 0}),
        (["heavy"], {"b": 1, "c": 3}),  # `extends` follows `a.b` in the preset
        (["last"], {"b": 4, "c": 0}),  # `extends` precedes `a.b` in the preset
        (["last", "light"], {"b": 1, "c": 0}),
        (["heavy", "light", "whole"], {"z": 26}),
        (["empty"], {"b": 0, "c": 0}),
    ],
    ids=str,
)
def test_presets_are_applied_in_order_and_extends_at_its_position(
    load: Load, presets: list[str], value: object
) -> None:
    assert load(TEXT, presets=presets).get("a") == value


def test_the_presets_applied_are_listed_in_order_without_repeats(load: Load) -> None:
    assert load(TEXT, presets=["heavy", "light", "heavy"]).get("ci_presets.names") == ["heavy", "light"]


def test_names_that_were_applied_earlier_stay_listed(load: Load) -> None:
    text = "ci_presets: {names: [before], p: {a: 1}, q: {a: 2}}\na: 0\n"
    assert load(text, presets=["q", "p"]).get("ci_presets.names") == ["before", "q", "p"]


@pytest.mark.parametrize(("to_apply", "value"), [("null", 0), ("p", 1), ("[p]", 1), ("[p, q]", 2), ("[]", 0)], ids=str)
def test_the_file_itself_can_apply_presets(load: Load, to_apply: str, value: int) -> None:
    configuration = load(f"ci_presets: {{to_apply: {to_apply}, p: {{a: 1}}, q: {{a: 2}}}}\na: 0\n")
    assert configuration.get("a") == value


@pytest.mark.parametrize("to_apply", ["7", "{p: 1}", "[p, 7]", "true"])
def test_to_apply_must_be_a_list_of_names(load: Load, to_apply: str) -> None:
    with pytest.raises(
        ConfigurationError, match=r"^config\.yaml:2: `ci_presets\.to_apply` must be a list of names, not .*$"
    ):
        load(f"ci_presets:\n  to_apply: {to_apply}\n  p: {{}}\n")


LOOP = """\
ci_presets:
  a: {extends: [b]}
  b:
    extends: [c, a]
  c: {x: 1}
  self:
    extends: self
x: 0
"""


@pytest.mark.parametrize(
    ("preset", "message"),
    [
        ("a", "config.yaml:4: the presets form a loop: a -> b -> a"),
        ("b", "config.yaml:2: the presets form a loop: b -> a -> b"),
        ("self", "config.yaml:7: the presets form a loop: self -> self"),
    ],
)
def test_a_preset_loop_names_its_chain(load: Load, preset: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(LOOP, presets=[preset])
    assert str(caught.value) == message


def test_extending_a_preset_twice_is_not_a_loop(load: Load) -> None:
    text = "ci_presets: {base: {x: 1}, a: {extends: [base]}, b: {extends: [base, a]}}\nx: 0\n"
    assert load(text, presets=["b"]).get("ci_presets.names") == ["b", "base", "a"]


FAULTY = """\
ci_presets:
  names: null
  small:
    tests.step: 1
  outer:
    extends: [inner]
  inner:
    extends:
    - smal
  deep:
    extends: [wrong]
  wrong:
    tests.steps: 2
    tests.stpe: 3
  path: {"tests..step": 1}
  root: {$: {}}
  into: {tests.step.k: 1}
  none: null
  text: some text
  number: {extends: 7}
  numbers: {extends: [7]}
  mapping: {extends: {small: 1}}
  to_none: {extends: [none]}
  8: {tests.step: 8}
tests: {step: 0}
"""


@pytest.mark.parametrize(
    ("preset", "message"),
    [
        ("smal", "config.yaml: unknown preset `smal`: did you mean small?"),
        ("", "config.yaml: unknown preset ``: the presets are "),
        ("8", "config.yaml: unknown preset `8`: the presets are "),
        ("outer", "config.yaml:8: unknown preset `smal`, requested by outer -> inner: did you mean small?"),
        ("wrong", "config.yaml:13: preset wrong cannot create a field: no field `tests.steps`: "),
        ("deep", "config.yaml:13: preset deep -> wrong cannot create a field: no field `tests.steps`: "),
        ("deep", "`tests` has no `steps`; did you mean step?"),
        ("path", "config.yaml:15: preset path cannot create a field: 'tests..step' is not a path"),
        ("root", "config.yaml:16: preset root cannot create a field: `$` is the whole document"),
        ("into", "config.yaml:17: preset into cannot create a field: no field `tests.step.k`: `tests.step` is a int"),
        ("none", "config.yaml: `ci_presets.none` is None, not a preset"),
        ("names", "config.yaml: `ci_presets.names` is None, not a preset"),
        ("text", "config.yaml: `ci_presets.text` is 'some text', not a preset"),
        ("number", "config.yaml:20: `extends` of preset `number` must be a list of presets, not 7"),
        ("numbers", "config.yaml:21: `extends` of preset `numbers` must be a list of presets, not [7]"),
        ("mapping", "config.yaml:22: `extends` of preset `mapping` must be a list of presets, not {'small': 1}"),
        ("to_none", "config.yaml:23: `ci_presets.none` is None, not a preset, requested by to_none"),
    ],
)
def test_a_faulty_preset_is_named_with_its_chain_and_line(load: Load, preset: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(FAULTY, presets=[preset])
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["a: 1\n", "ci_presets: null\n", "ci_presets: [x]\n", "ci_presets: text\n"])
def test_a_document_without_presets_has_none(load: Load, text: str) -> None:
    assert presets.names(document.parse(text, source="config.yaml")) == []
    with pytest.raises(ConfigurationError, match="unknown preset `light`: there are no presets"):
        load(text, presets=["light"])


def test_other_fields_of_ci_presets_are_not_presets() -> None:
    assert presets.names(document.parse(TEXT, source="config.yaml")) == ["light", "heavy", "last", "whole", "empty"]


def test_a_preset_can_change_a_later_preset(load: Load) -> None:
    text = "ci_presets: {light: {a.b: 1}, tune: {'ci_presets.light[\"a.b\"]': 9}}\na: {b: 0}\n"
    assert load(text, presets=["tune", "light"]).get("a.b") == 9
    assert load(text, presets=["light", "tune"]).get("a.b") == 1
