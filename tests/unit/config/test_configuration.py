"""The layers of a configuration have an order, and each value has a location and a history."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.config.conftest import Load
from toolbox.config.paths import PathError
from toolbox.ground.model.errors import ConfigurationError

LAYERED = """\
ci_presets:
  to_apply: first
  first: {a: to_apply}
  second: {a: preset}
a: file
b: "@a"
"""


def override_file(directory: Path, name: str, text: str) -> Path:
    """Write an override file, and return its path."""
    file = directory / name
    file.write_text(text, encoding="utf-8")
    return file


@pytest.fixture
def layers(tmp_path: Path) -> dict[str, Any]:
    """Return all layers above the file that set `a`, from the lowest to the highest."""
    return {
        "presets": ["second"],
        "override_files": [override_file(tmp_path, f"{name}.yaml", f"a: {name}\n") for name in ("one", "two")],
        "overrides": {"a": "overrides"},
    }


@pytest.mark.parametrize(
    ("kept", "value"),
    [
        ([], "to_apply"),
        (["presets"], "preset"),
        (["presets", "override_files"], "two"),
        (["override_files"], "two"),
        (["presets", "override_files", "overrides"], "overrides"),
        (["presets", "overrides"], "overrides"),
    ],
)
def test_the_highest_layer_wins(load: Load, layers: dict[str, Any], kept: list[str], value: str) -> None:
    configuration = load(LAYERED, **{name: layers[name] for name in kept})
    assert (configuration.get("a"), configuration.get("b")) == (value, value)


def test_every_layer_is_in_the_history_with_its_line(load: Load, layers: dict[str, Any]) -> None:
    history = load(LAYERED, **layers).history("a")
    assert [(change.layer, str(change.location), change.replaced) for change in history] == [
        ("preset first", "config.yaml:3", "file"),
        ("preset second", "config.yaml:4", "to_apply"),
        (f"override file {layers['override_files'][0]}", "one.yaml:1", "preset"),
        (f"override file {layers['override_files'][1]}", "two.yaml:1", "one"),
        ("--overrides", "None", "two"),
    ]


def test_a_change_records_the_location_of_the_replaced_value(load: Load, layers: dict[str, Any]) -> None:
    history = load(LAYERED, **layers).history("a")
    lines = [str(change.replaced_location) for change in history]
    assert lines == ["config.yaml:5", "config.yaml:3", "config.yaml:4", "one.yaml:1", "two.yaml:1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ab: 1\n", r"^o\.yaml:1: no field `ab`: the document has no `ab`; did you mean "),
        ("a: 1\n\na.b: 1\n", r"^o\.yaml:3: no field `a\.b`: `a` is a int, which has no fields$"),
        ("a..b: 1\n", r"^o\.yaml:1: 'a\.\.b' is not a path"),
        ("- a\n", r"^o\.yaml: the document must be a mapping, not a list$"),
        ("", r"^o\.yaml: the document must be a mapping, not empty$"),
    ],
)
def test_a_wrong_override_file_is_named_with_its_line(load: Load, tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load(LAYERED, override_files=[override_file(tmp_path, "o.yaml", text)])


def test_an_override_of_an_unknown_field_suggests_a_similar_name(load: Load) -> None:
    with pytest.raises(ConfigurationError, match=r"^--overrides: no field `tets`: .* did you mean tests\?\n"):
        load("tests: 1\n", overrides={"tets": 1})


@pytest.mark.parametrize(
    ("path", "placeholder"), [("tests.b", "tests: {b: null}"), ("c", "c: null"), ("c.d.e", "c: {d: {e: null}}")]
)
@pytest.mark.parametrize("layer", ["preset", "override", "set_config", "cell"])
def test_the_error_for_a_missing_field_says_how_to_add_the_field(
    load: Load, layer: str, path: str, placeholder: str
) -> None:
    text = f"ci_presets: {{p: {{{path}: 1}}}}\ntests: {{a: 1}}\n"
    make: dict[str, Callable[[], Any]] = {
        "preset": lambda: load(text, presets=["p"]),
        "override": lambda: load(text, overrides={path: 1}),
        "set_config": lambda: load(text).replaced(path, 1, layer="set_config"),
        "cell": lambda: load(text).overlaid({path: 1}, {}),
    }
    message = f"only existing fields can be set: add the field to config.yaml, as in `{placeholder}`"
    with pytest.raises(ConfigurationError) as caught:
        make[layer]()
    assert str(caught.value).endswith(message)


def test_overriding_a_field_of_a_scalar_gives_no_hint_to_add_it(load: Load) -> None:
    with pytest.raises(ConfigurationError, match=r"`tests` is a int, which has no fields$"):
        load("tests: 1\n", overrides={"tests.a": 1})


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ("tests: null\n", "tests.a.b", "`tests` is null, which has no fields{}`tests: {{a: {{b: VALUE}}}}`"),
        ("a: [{b: null}]\n", "a[0].b.c", "`a[0].b` is null, which has no fields{}`a[0].b: {{c: VALUE}}`"),
    ],
)
def test_overriding_a_field_of_null_says_to_set_the_whole_field(load: Load, text: str, path: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(text, overrides={path: 1})
    assert str(caught.value).endswith(message.format("\n  set the whole field, as in "))


def test_every_wrong_reference_is_named_once(load: Load) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load("a: ['@x', '{@y}', {k: '@c'}]\nb: '@c'\nc: '@z'\n").check()
    assert [fault.partition(": dangling")[0] for fault in caught.value.faults] == [
        "config.yaml:1: `a[0]`",
        "config.yaml:1: `a[1]`",
        "config.yaml:3: `c`",
    ]


def test_overriding_a_preset_does_not_change_the_applied_values(load: Load) -> None:
    configuration = load(LAYERED, presets=["second"], overrides={"ci_presets.second.a": "late"})
    assert configuration.get("a") == "preset"


def test_the_requested_overrides_are_not_modified(load: Load) -> None:
    overrides: dict[str, Any] = {"a": {"k": 1}, "a.k": 2}
    assert load("a: 0\n", overrides=overrides).get("a.k") == 2
    assert overrides == {"a": {"k": 1}, "a.k": 2}


NESTED = """\
ci_presets:
  whole: {t: {model: {size: 1, name: x}}}
  inside:
    t.model.size: 2
  elsewhere: {u: 1}
t:
  model:
    size: 0
u: 0
"""


def test_the_history_includes_changes_of_parents_and_children(load: Load) -> None:
    configuration = load(NESTED, presets=["whole", "inside", "elsewhere"])
    layers = {
        path: [change.layer for change in configuration.history(path)]
        for path in ("t", "t.model", "t.model.size", "t.model.name", "u", "ci_presets.elsewhere")
    }
    assert layers == {
        "t": ["preset whole", "preset inside"],
        "t.model": ["preset whole", "preset inside"],
        "t.model.size": ["preset whole", "preset inside"],
        "t.model.name": ["preset whole"],
        "u": ["preset elsewhere"],
        "ci_presets.elsewhere": [],
    }


def test_the_location_of_a_value_is_that_of_its_last_change(load: Load) -> None:
    configuration = load(NESTED, presets=["whole", "inside"])
    assert configuration.location("t.model.size") == "config.yaml:4"
    assert configuration.location("t.model.name") == "config.yaml:2"
    assert load(NESTED).location("t.model.size") == "config.yaml:8"


ALIASED = """\
base: &base
  x: 1
one: *base
two: {<<: *base}
ci_presets:
  p: {one.x: 2}
"""


def test_a_change_through_an_alias_is_in_the_history_of_both_names(load: Load) -> None:
    configuration = load(ALIASED, presets=["p"])
    assert [configuration.get(path) for path in ("base.x", "one.x", "two.x")] == [2, 2, 1]
    assert [change.layer for change in configuration.history("base.x")] == ["preset p"]
    assert configuration.location("base.x") == "config.yaml:6"
    assert configuration.history("two.x") == []


def test_replaced_values_are_recorded_as_copies(load: Load) -> None:
    text = "ci_presets: {p: {a: {k: 1}}, q: {a.k: 2}, r: {a: 3}}\na: 0\n"
    history = load(text, presets=["p", "q", "r"]).history("a")
    assert [(change.value, change.replaced) for change in history] == [({"k": 1}, 0), (2, 1), (3, {"k": 2})]


def test_replaced_does_not_change_the_original(load: Load) -> None:
    before = load("a: {b: 1}\nc: '@a.b'\n")
    after = before.replaced("a.b", 2, layer="set_config")
    assert [before.get("a.b"), before.get("c"), after.get("a.b"), after.get("c")] == [1, 1, 2, 2]
    assert before.changes == ()


def test_replaced_keeps_lines_and_history(load: Load) -> None:
    configuration = load(ALIASED, presets=["p"]).replaced("one.x", 3, layer="set_config (x.py:1)")
    assert configuration.get("base.x") == 3
    assert [change.layer for change in configuration.history("base.x")] == ["preset p", "set_config (x.py:1)"]
    assert configuration.location("base.x") == "set_config (x.py:1)"  # the value 3 is in no file
    assert configuration.location("two.x") == "config.yaml:2"


def test_replaced_copies_the_value(load: Load) -> None:
    value = {"k": [1]}
    configuration = load("a: 0\n").replaced("a", value, layer="set_config")
    value["k"].append(2)
    assert configuration.get("a") == {"k": [1]}


@pytest.mark.parametrize("path", ["b", "a.x", "$", "a..b"])
def test_replaced_creates_no_field(load: Load, path: str) -> None:
    with pytest.raises(ConfigurationError):
        load("a: 0\n").replaced(path, 1, layer="set_config")


WAYS = [(path, written) for path in ("$", "a", "a.l", "ci_presets", "ci_presets.p") for written in (True, False)]


@pytest.mark.parametrize(("path", "written"), [*WAYS, ("r", False)])
def test_returned_values_are_copies(load: Load, path: str, written: bool) -> None:
    configuration = load("ci_presets: {p: {a: {k: 1}}}\na: {l: [1]}\nr: '@a'\n")
    give = configuration.written if written else configuration.get
    give(path).clear()
    assert give(path)


def test_the_presets_in_the_whole_document_are_copies(load: Load) -> None:
    configuration = load("ci_presets: {p: {a: 1}}\na: 0\n")
    configuration.get("$")["ci_presets"]["p"]["a"] = 9
    assert configuration.get("ci_presets.p.a") == 1


@pytest.mark.parametrize("path", ["nothing", "a.b", "list[3]", "list.x"])
def test_a_field_that_is_missing_has_the_default_or_is_an_error(load: Load, path: str) -> None:
    configuration = load("a: 1\nlist: []\n")
    assert configuration.get(path, None) is None
    with pytest.raises(PathError, match=r"^config\.yaml: no field"):
        configuration.get(path)


def test_a_default_does_not_replace_null(load: Load) -> None:
    assert load("a: null\n").get("a", 7) is None


def test_a_default_does_not_hide_a_wrong_reference(load: Load) -> None:
    with pytest.raises(ConfigurationError, match="dangling reference"):
        load("a: '@nothing'\n").get("a", 7)


def test_a_configuration_has_its_source_and_changes(load: Load) -> None:
    configuration = load(LAYERED)
    assert configuration.source == "config.yaml"
    assert [change.layer for change in configuration.changes] == ["preset first"]


def test_a_view_resolves_values_on_access(load: Load) -> None:
    view = load("a: {b: '@c', 8: eight}\nc: [1, '@d']\nd: 2\nbroken: '@nothing'\n").view()
    assert (view["a"]["b"], view["a"]["8"], list(view), len(view)) == ([1, 2], "eight", ["a", "c", "d", "broken"], 4)
    assert str(view["a"]) == "{'b': [1, 2], 8: 'eight'}"
    with pytest.raises(ConfigurationError, match="dangling"):
        view["broken"]
    with pytest.raises(KeyError):
        view["none"]


# The values that a cell of the matrix sees


CELLS = """\
model: {size: 1, layers: [2, 3], name: "size {@model.size}"}
copied: "@model"
other: {kept: true}
matrix: {command: "@cell.batch", text: "{@model.name} x {@cell.batch}"}
"""


def test_references_in_a_cell_use_the_values_of_the_cell(load: Load) -> None:
    seen = load(CELLS).overlaid({"model.size": 70, "model.layers[1]": 9}, {"batch": 8})
    assert (seen.get("model.size"), seen.get("model.name"), seen.get("copied.layers")) == (70, "size 70", [2, 9])
    assert seen.get("matrix") == {"command": 8, "text": "size 70 x 8"}
    assert seen.get("cell") == {"batch": 8}


def test_cells_do_not_share_values(load: Load) -> None:
    configuration = load(CELLS)
    cells = [configuration.overlaid({"model.size": size}, {"batch": size}) for size in (70, 405)]
    assert [(cell.get("model.size"), cell.get("cell.batch")) for cell in cells] == [(70, 70), (405, 405)]
    assert configuration.get("model.size") == 1
    assert configuration.get("cell", None) is None
    assert configuration.written("model")["layers"] == [2, 3]


@pytest.mark.parametrize("path", ["model.sise", "model.layers[2]", "gone", "other.kept.x"])
def test_a_cell_cannot_create_fields(load: Load, path: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^config\.yaml"):
        load(CELLS).overlaid({path: 1}, {})


def test_an_overlay_keeps_the_locations_of_unchanged_values(load: Load) -> None:
    seen = load(CELLS).overlaid({"model.size": 70}, {"batch": 8})
    assert (seen.location("other.kept"), seen.location("matrix.command")) == ("config.yaml:3", "config.yaml:4")
    with pytest.raises(
        ConfigurationError, match=r"^config\.yaml:4: `matrix\.command`: dangling reference '@cell\.batch'"
    ):
        load(CELLS).overlaid({}, {"bach": 8}).get("matrix.command")


def test_a_local_file_changes_the_file_and_is_changed_by_all_other_layers(load: Load, tmp_path: Path) -> None:
    override_file(tmp_path, "config.local.yaml", "a: local\nci_presets.to_apply: null\n")
    assert load(LAYERED).get("a") == "local"
    assert load(LAYERED, presets=["second"]).get("a") == "preset"
    (change, *_) = load(LAYERED).history("a")
    assert (change.layer, str(change.location), change.replaced) == ("local file", "config.local.yaml:1", "file")


@pytest.mark.parametrize(
    ("text", "message"), [("zz: 1", "config.local.yaml:1: no field `zz`"), ("[", "config.local.yaml:")]
)
def test_a_wrong_local_file_is_named_with_its_line(load: Load, tmp_path: Path, text: str, message: str) -> None:
    override_file(tmp_path, "config.local.yaml", text)
    with pytest.raises(ConfigurationError, match=message):
        load(LAYERED)
