"""A YAML document records the file and the line of each value, and each of its changes."""

import logging
from pathlib import Path

import pytest

from toolbox.config import document, paths
from toolbox.config.document import Document, Location
from toolbox.config.paths import PathError
from toolbox.ground.model.errors import ConfigurationError

TEXT = """\
# a comment
a:
  b: 1
  list:
  - x
  - k: v
  "dotted.key": |
    two
    lines
  flow: {p: 1,
         q: 2}
8: eight
"""


def line(text: str, path: str) -> int | None:
    """Return the location of a field in a text."""
    found = document.parse(text, source="f").location(paths.parse(path))
    return found.line if found else None


@pytest.mark.parametrize(
    ("path", "number"),
    [
        ("a", 2),
        ("a.b", 3),
        ("a.list[0]", 5),
        ("a.list[1].k", 6),
        ("a.list[-1].k", 6),
        ('a["dotted.key"]', 7),
        ("a.flow.q", 11),
        ("8", 12),
        ("a.nothing.here", 2),
        ("a.list[7]", 4),
        ("nothing", None),
        ("$", None),
    ],
)
def test_a_field_has_its_line_or_that_of_its_parent(path: str, number: int | None) -> None:
    assert line(TEXT, path) == number


def test_without_a_line_the_file_is_named() -> None:
    found = document.parse(TEXT, source="config/x.yaml")
    assert found.where(("nothing",)) == "config/x.yaml"
    assert found.where(("a", "b")) == "config/x.yaml:3"


MERGED = """\
base: &base
  x: 1
  y: 2
a:
  <<: *base
  y: 3
b: *base
"""


def test_merge_keys_and_anchors_keep_the_line_that_wrote_the_value() -> None:
    found = document.parse(MERGED, source="f")
    assert found.root["a"] == {"x": 1, "y": 3}
    assert [line(MERGED, path) for path in ("a.x", "a.y", "b.x", "b.y")] == [2, 6, 2, 3]


def test_an_alias_shares_its_container_and_a_merge_copies_it() -> None:
    root = document.parse(MERGED, source="f").root
    assert root["b"] is root["base"]
    assert root["a"] is not root["base"]


@pytest.mark.parametrize("text", ["a: &a {b: *a}", "x: 1\na: &a [[*a]]", "&a {b: [*a]}"])
def test_an_anchor_that_contains_itself_is_refused(text: str) -> None:
    with pytest.raises(
        ConfigurationError, match=r"^f: broken YAML: an anchor \(&\) contains an alias \(\*\) of itself"
    ):
        document.parse(text, source="f")


def test_a_duplicate_key_is_a_warning_and_the_last_value_is_used(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = document.parse("a: 1\nb: 2\na: 3\n", source="f")
    assert found.root == {"a": 3, "b": 2}
    assert caplog.messages == ["f:3: `a` is already in line 1: the last value is used"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1\nb: 2\n", r"f:2:\d+: broken YAML: "),
        ("a:\n\tb: 1\n", r"f:2:1: broken YAML: .*token"),
        ("a: 1\n  b: 2\n", r"f:2:4: broken YAML: mapping values"),
        ("a: *nothing\n", r"f:1:4: broken YAML: .*undefined alias"),
        ("a: !!python/object/apply:os.getcwd []\n", r"f:1:4: broken YAML: could not determine a constructor"),
        ("a: {[1]: 2}\n", r"f:1:5: broken YAML: found unhashable key"),
        ("a: \x00\n", r"f.*broken YAML: .*(control|special) characters"),
        ("a: \x1b[31m\n", r"f.*broken YAML: .*(control|special) characters"),
        ("a: !Ref b\n", r"f:1:4: broken YAML: could not determine a constructor"),
        ("a: 1\n---\nb: 2\n", r"f:2:1: broken YAML: but found another document"),
        ("", r"f: the document must be a mapping, not empty"),
        ("# only a comment", r"f: the document must be a mapping, not empty"),
        ("- 1\n", r"f: the document must be a mapping, not a list"),
        ("text\n", r"f: the document must be a mapping, not a str"),
        ("!!set {a}\n", r"f: the document must be a mapping, not a set"),
    ],
)
def test_a_document_that_is_not_a_mapping_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{message}"):
        document.parse(text, source="f")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"the override file .*none\.yaml does not exist"):
        document.load(tmp_path / "none.yaml", what="the override file")


def test_a_directory_in_place_of_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"the configuration file .* cannot be read: .*directory"):
        document.load(tmp_path)


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "latin.yaml"
    file.write_bytes(b"a: caf\xe9\n")
    with pytest.raises(ConfigurationError, match=r"cannot be read: .*utf-8"):
        document.load(file)


def test_a_file_in_the_working_directory_has_a_relative_name(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("a: 1\n")
    assert document.load(tmp_path / "c.yaml").where(("a",)) == "c.yaml:1"


def changed(text: str, path: str, value: object, location: Location | None = None) -> Document:
    """Return a document with one change."""
    found = document.parse(text, source="f")
    found.set(paths.parse(path), value, layer="preset p", location=location)
    return found


def test_a_value_replaces_the_whole_old_value() -> None:
    assert changed("a: {b: 1, c: 2}\n", "a", {"d": 3}).root == {"a": {"d": 3}}


@pytest.mark.parametrize("path", ["nothing", "a.x", "a.b.c", "list[2]", "list.x"])
def test_set_creates_no_field(path: str) -> None:
    with pytest.raises(PathError, match=r"^f: no field"):
        changed("a: {b: 1}\nlist: [1, 2]\n", path, 1)


def test_the_document_itself_cannot_be_replaced() -> None:
    with pytest.raises(PathError, match=r"^f: `\$` is the whole document: name a field$"):
        changed("a: 1\n", "$", {})


def test_a_change_records_the_old_value_and_its_location() -> None:
    (change,) = changed("a:\n  b: [1]\n", "a.b", 2, Location("g", 9)).changes
    assert (change.path, change.value, change.replaced) == (("a", "b"), 2, [1])
    assert (str(change.location), str(change.replaced_location)) == ("g:9", "f:2")


def test_later_changes_do_not_alter_recorded_changes() -> None:
    found = changed("a: 0\n", "a", {"k": 1})
    found.set(("a", "k"), 2, layer="preset q", location=None)
    assert [change.value for change in found.changes] == [{"k": 1}, 2]


def test_a_changed_field_has_the_location_of_the_change() -> None:
    found = changed("a: {b: 1}\n", "a.b", 2, Location("g", 9))
    assert found.where(("a", "b")) == "g:9"


def test_a_change_outside_of_files_has_its_layer_as_location() -> None:
    found = changed("x: 0\na:\n  b:\n    c: 1\n", "a.b.c", 2)
    assert found.where(("a", "b", "c")) == "preset p"


def test_a_copy_shares_nothing_with_its_original() -> None:
    found = document.parse("a: {b: [1]}\n", source="f")
    copied = found.copy()
    copied.set(("a", "b", 0), 2, layer="set_config", location=None)
    assert (found.root, found.changes) == ({"a": {"b": [1]}}, [])


def test_a_copy_keeps_lines_and_shared_containers() -> None:
    found = document.parse(MERGED, source="f").copy()
    assert [found.where(paths.parse(path)) for path in ("a.x", "b.y")] == ["f:2", "f:3"]
    found.set(("b", "x"), 9, layer="set_config", location=None)
    assert found.root["base"]["x"] == 9


def test_a_copy_keeps_the_changes_in_their_slots() -> None:
    copied = changed("a: {b: 1}\n", "a.b", 2).copy()
    assert [change.slot for change in copied.changes] == [copied.slots(("a", "b"))[-1]]


def test_an_overlay_does_not_change_the_document() -> None:
    found = document.parse("a: {b: {c: 1}, d: [1, {e: 2}]}\n", source="f")
    overlay = found.overlaid({("a", "b", "c"): 7, ("a", "d", 1, "e"): 8}, {"cell": {"x": 9}})
    assert overlay.root == {"a": {"b": {"c": 7}, "d": [1, {"e": 8}]}, "cell": {"x": 9}}
    assert found.root == {"a": {"b": {"c": 1}, "d": [1, {"e": 2}]}}


def test_an_overlay_copies_only_containers_along_the_path() -> None:
    found = document.parse("a: {b: {c: 1}, d: {e: 2}}\nf: {g: 3}\n", source="f")
    overlay = found.overlaid({("a", "b", "c"): 7}, {})
    assert overlay.root["f"] is found.root["f"]
    assert overlay.root["a"]["d"] is found.root["a"]["d"]
    assert overlay.where(("a", "d", "e")) == "f:1"


def test_an_overlay_does_not_change_aliases_of_the_container() -> None:
    overlay = document.parse(MERGED, source="f").overlaid({("b", "x"): 9}, {})
    assert (overlay.root["b"]["x"], overlay.root["base"]["x"]) == (9, 1)


@pytest.mark.parametrize("path", ["nothing", "a.x", "list[1]", "a.b.c"])
def test_an_overlay_creates_no_field(path: str) -> None:
    found = document.parse("a: {b: 1}\nlist: [1]\n", source="f")
    with pytest.raises(PathError, match=r"^f: no field"):
        found.overlaid({paths.parse(path): 1}, {})


def test_an_integer_with_too_many_digits_is_a_fault_of_the_file() -> None:
    with pytest.raises(ConfigurationError, match=r"^f: broken YAML: .*4300 digits"):
        document.parse(f"a: {'9' * 5000}", source="f")
