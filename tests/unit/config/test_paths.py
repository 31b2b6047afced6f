"""Paths such as `a.b`, `a["key.with.dots"]`, `a[0]` and `$` are parsed, rendered and resolved."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolbox.config import paths
from toolbox.config.paths import Path, PathError


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("$", ()),
        (" $ ", ()),
        ("a", ("a",)),
        ("$.a.b", ("a", "b")),
        ("a.b-c_d.e/f", ("a", "b-c_d", "e/f")),
        ("a.1x.2", ("a", "1x", "2")),
        ('a["b.c"].d', ("a", "b.c", "d")),
        ("a['b.c']", ("a", "b.c")),
        ('$["a b"]', ("a b",)),
        ('"a.b".c', ("a.b", "c")),
        ('a."b.c"', ("a", "b.c")),
        (r'a["say \"hi\" \\"]', ("a", 'say "hi" \\')),
        ("a[0][-1].b", ("a", 0, -1, "b")),
        ('["it\'s"]', ("it's",)),
        ("é.日本", ("é", "日本")),
        ('a[""]', ("a", "")),
    ],
)
def test_a_path_is_parsed(text: str, path: Path) -> None:
    assert paths.parse(text) == path


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        ".",
        "a.",
        ".a",
        "a..b",
        "a[",
        "a[]",
        "a[b]",
        'a["b',
        'a"b"',
        "a]b",
        "a[0]b",
        "$.",
        "a['b]",
        f"a[{'9' * 5000}]",
    ],
)
def test_an_invalid_path_is_refused_with_examples(text: str) -> None:
    with pytest.raises(PathError, match=r"is not a path: write a\.b, a\[0\]") as caught:
        paths.parse(text)
    assert repr(text) in str(caught.value)


KEYS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8), st.text(".[]\"\\$ \n'@{}", max_size=6), st.integers()
)


@settings(deadline=None, derandomize=True, max_examples=400)
@given(st.lists(KEYS, max_size=4).map(tuple))
def test_rendered_paths_can_be_parsed(path: Path) -> None:
    assert paths.parse(paths.render(path)) == path


@pytest.mark.parametrize(
    ("container", "key", "found"),
    [
        ({"a": 1}, "a", ("a", 1)),
        ({8: "gpus"}, "8", (8, "gpus")),
        ({True: "yes"}, "True", (True, "yes")),
        ({None: "nothing"}, "None", (None, "nothing")),
        ({1.5: "half"}, "1.5", (1.5, "half")),
        ({"8": "text", 8: "number"}, "8", ("8", "text")),
        (["x", "y"], 0, (0, "x")),
        (["x", "y"], -1, (1, "y")),
    ],
)
def test_child_returns_the_actual_key(container: Any, key: str | int, found: tuple[Any, Any]) -> None:
    assert paths.child(container, key) == found


@pytest.mark.parametrize(
    ("container", "key"), [({}, "a"), (["x"], 1), (["x"], -2), (["x"], "0"), ("text", 0), (None, "a"), (5, "real")]
)
def test_a_missing_key_is_a_key_error(container: Any, key: str | int) -> None:
    with pytest.raises(KeyError):
        paths.child(container, key)


@pytest.mark.parametrize(
    ("path", "depth", "container", "message"),
    [
        (("tset",), 0, {"test": 1}, "f: no field `tset`: the document has no `tset`; did you mean test?"),
        (("a", "x"), 1, {"b.c": 1, 8: 2}, 'f: no field `a.x`: `a` has no `x`; the fields are 8, ["b.c"]'),
        (("a", "x"), 1, {}, "f: no field `a.x`: `a` has no `x`; there are no fields"),
        (("a", 9), 1, [1, 2], "f: no field `a[9]`: `a` is a list of 2 items"),
        (("a", "x"), 1, "text", "f: no field `a.x`: `a` is a str, which has no fields"),
        (("a", "x"), 1, None, "f: no field `a.x`: `a` is null, which has no fields"),
    ],
)
def test_a_missing_field_suggests_existing_fields(path: Path, depth: int, container: Any, message: str) -> None:
    assert str(paths.missing(path, depth, container, source="f")) == message
