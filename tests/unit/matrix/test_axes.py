"""The axes of a matrix make combinations, which have distinct names and can be selected."""

import datetime as dt
import hashlib
from typing import Any

import pytest

from tests.unit.matrix.conftest import matrix
from toolbox.matrix.axes import Combination, expand, matches, unmatched
from toolbox.matrix.axis_values import canonical


def names(of: dict[str, Any], **fields: Any) -> list[str]:
    """Return the names of the combinations of these axes."""
    return [combination.name for combination in expand(matrix(of, **fields))]


def only(of: dict[str, Any]) -> Combination:
    """Return the only combination of these axes."""
    (combination,) = expand(matrix(of))
    return combination


TWO = {"model": ["a", "b"], "batch": [8, 16]}
LABELLED = {"model": {"tiny": {"layers": 1}}, "batch": [8]}
ZIPPED = {"chip": ["v4", "v5"], "model": ["a", "b"], "hosts": [1, 2]}
ZIP = [["hosts", "chip"]]


# The product of the axes


def test_the_last_axis_varies_fastest() -> None:
    assert names(TWO) == ["model=a,batch=8", "model=a,batch=16", "model=b,batch=8", "model=b,batch=16"]


def test_a_zip_group_advances_at_the_position_of_its_first_axis() -> None:
    assert names(ZIPPED, zip=ZIP) == [
        "chip=v4,model=a,hosts=1",
        "chip=v4,model=b,hosts=1",
        "chip=v5,model=a,hosts=2",
        "chip=v5,model=b,hosts=2",
    ]


def test_a_combination_has_its_settings_in_the_order_of_the_axes() -> None:
    combination = expand(matrix(ZIPPED, zip=ZIP))[1]
    assert list(combination.settings.items()) == [("chip", "v4"), ("model", "b"), ("hosts", 1)]
    assert combination.labels == {"chip": "v4", "model": "b", "hosts": "1"}


def test_excluded_combinations_are_omitted() -> None:
    assert names(TWO, exclude=[{"model": "a", "batch": 8}, {"batch": [16]}]) == ["model=b,batch=8"]


def test_all_can_be_excluded() -> None:
    assert names(TWO, exclude=[{"model": ["a", "b"]}]) == []


def test_a_product_that_is_too_large_is_refused() -> None:
    block = matrix({name: list(range(50)) for name in "abc"})
    with pytest.raises(ValueError, match="have 125,000 combinations, more than 100,000: make them shorter"):
        expand(block)


# Entries of `include`


def test_an_included_value_need_not_be_on_its_axis() -> None:
    assert names({"model": ["a"], "batch": [8]}, include=[{"model": "a", "batch": 64}])[1:] == ["model=a,batch=64"]


def test_axes_that_an_entry_leaves_out_take_all_their_values() -> None:
    assert names(TWO, include=[{"model": "c"}])[4:] == ["model=c,batch=8", "model=c,batch=16"]


def test_alternatives_are_included_in_their_order() -> None:
    assert names(TWO, include=[{"batch": [16, 8], "model": "c"}])[4:] == ["model=c,batch=16", "model=c,batch=8"]


def test_include_wins_over_exclude() -> None:
    block = {"exclude": [{"model": "a"}], "include": [{"model": "a", "batch": 8}]}
    assert names(TWO, **block) == ["model=b,batch=8", "model=b,batch=16", "model=a,batch=8"]


def test_an_existing_combination_is_not_added_again() -> None:
    assert names(TWO, include=[{"model": "b"}, {"batch": 32}, {"batch": 32, "model": ["b", "b"]}])[4:] == [
        "model=a,batch=32",
        "model=b,batch=32",
    ]


def test_a_label_in_an_entry_selects_its_value() -> None:
    (first, second) = expand(
        matrix({"model": {"tiny": {"layers": 1}}, "batch": [8]}, include=[{"model": "tiny", "batch": 9}])
    )
    assert second.settings["model"] == first.settings["model"] == {"layers": 1}
    assert second.name == "model=tiny,batch=9"


def test_a_value_that_has_a_label_is_included_with_it() -> None:
    axes_with_labels = {"model": {"tiny": {"layers": 1}}, "batch": [8]}
    assert names(axes_with_labels, include=[{"model": {"layers": 1}, "batch": 9}])[1:] == ["model=tiny,batch=9"]


def test_a_list_that_is_a_value_of_the_axis_is_included_as_this_value() -> None:
    (_, second) = expand(matrix({"shape": [[2, 2]], "batch": [8]}, include=[{"shape": [2, 2], "batch": 9}]))
    assert second.settings == {"shape": [2, 2], "batch": 9}


def test_a_list_in_a_list_is_included_as_a_new_value() -> None:
    (_, second) = expand(matrix({"shape": [[2, 2]]}, include=[{"shape": [[4, 4]]}]))
    assert second.settings == {"shape": [4, 4]}


@pytest.mark.parametrize(
    ("entry", "added"),
    [
        ({"model": "c"}, ["chip=v4,model=c,hosts=1", "chip=v5,model=c,hosts=2"]),
        ({"model": "c", "chip": "v5"}, ["chip=v5,model=c,hosts=2"]),
        ({"model": "c", "chip": ["v5", "v4"]}, ["chip=v4,model=c,hosts=1", "chip=v5,model=c,hosts=2"]),
        ({"model": "c", "chip": ["v4", "v5"], "hosts": [2, 1]}, ["chip=v4,model=c,hosts=1", "chip=v5,model=c,hosts=2"]),
        ({"model": "c", "chip": ["v4", "v5"], "hosts": 2}, ["chip=v5,model=c,hosts=2"]),
        ({"model": "c", "chip": "v4", "hosts": 2}, ["chip=v4,model=c,hosts=2"]),
        ({"model": "c", "chip": "v4", "hosts": [1, 4]}, ["chip=v4,model=c,hosts=1", "chip=v4,model=c,hosts=4"]),
    ],
)
def test_an_entry_includes_the_matching_rows_of_a_zip_group(entry: dict[str, Any], added: list[str]) -> None:
    assert sorted(names(ZIPPED, zip=ZIP, include=[entry])[4:]) == added


@pytest.mark.parametrize("chips", ["v6", ["v4", "v6"]])
def test_an_entry_that_matches_no_row_of_a_zip_group_is_an_error(chips: Any) -> None:
    message = r"`matrix.include\[1\]`: hosts, chip are zipped, and have no combination with .*chip=v6: .*, or give"
    with pytest.raises(ValueError, match=message):
        names(ZIPPED, zip=ZIP, include=[{"model": "a"}, {"chip": chips}])


# Names, labels and ids


@pytest.mark.parametrize(
    ("value", "label"),
    [
        (None, "null"),
        (True, "true"),
        (1.5, "1.5"),
        (8, "8"),
        ("text", "text"),
        ("", ""),
        (dt.date(2026, 11, 21), "2026-11-21"),
        ({"name": "small", "layers": 1}, "small"),
        ("x" * 40, "x" * 40),
    ],
)
def test_a_plain_value_is_its_own_label(value: Any, label: str) -> None:
    assert only({"model": [value]}).labels == {"model": label}


@pytest.mark.parametrize("value", ["x" * 41, [1, 2], {"layers": 1}, {"name": 5}, {"name": ""}])
def test_a_value_that_is_too_long_to_show_has_a_digest(value: Any) -> None:
    digest = hashlib.sha256(canonical(value).encode()).hexdigest()[:6]
    assert only({"training.model": [value]}).labels == {"training.model": f"model-{digest}"}


@pytest.mark.parametrize(
    ("paths", "name"),
    [
        (["training.settings.batch", "model"], "batch=0,model=0"),
        (["training.batch", "inference.batch"], "training.batch=0,inference.batch=0"),
        (["training.batch", "batch", "a.steps"], "training.batch=0,batch=0,steps=0"),
        (['a["key.with.dots"]'], "key.with.dots=0"),
    ],
)
def test_the_name_of_an_axis_path_is_its_last_key(paths: list[str], name: str) -> None:
    assert names({path: [0] for path in paths}) == [name]


def test_a_name_is_a_valid_directory_name() -> None:
    assert names({"a b": ["x/y\tz\x00\u2028\x9f\ud800"], "c": {"large one": 1}}) == ["a_b=x_y_z____,c=large_one"]


def test_names_that_look_alike_have_their_ids() -> None:
    one, text, two = expand(matrix({"batch": [1, "1", 2]}))
    assert (one.name, text.name) == (f"batch=1,id={one.id[:6]}", f"batch=1,id={text.id[:6]}")
    assert two.name == "batch=2"


def test_a_label_never_duplicates_another_name() -> None:
    one, *_ = expand(matrix({"batch": [1, "1"]}))
    found = names({"batch": [1, "1", one.name.removeprefix("batch=")]})
    assert len(set(found)) == 3
    assert found[0] == f"batch=1,id={one.id}"


def test_an_id_is_the_digest_of_the_settings() -> None:
    combination = only({"!b": [{"!x": [1, None], 2: "y"}], "a": [dt.date(2026, 1, 2)]})
    written = '{"!!b":{"!!x":[1,null],"!2":"y"},"a":{"!date":"2026-01-02"}}'
    assert combination.id == hashlib.sha256(written.encode()).hexdigest()[:12]


# Selection of combinations


@pytest.mark.parametrize(
    ("value", "pattern"),
    [
        (8, 8),
        (8, [4, 8]),
        (8, "8"),
        (None, None),
        (dt.date(2026, 1, 2), dt.date(2026, 1, 2)),
        ([2, 2], [2, 2]),
        ([2, 2], [[1, 1], [2, 2]]),
        ({"name": "small", "layers": 1}, "small"),
        ({"name": "small", "layers": 1}, ["large", "small"]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ],
)
def test_a_combination_matches_values_labels_and_lists(value: Any, pattern: Any) -> None:
    assert matches({"x": pattern}, only({"x": [value], "y": [1]}))


@pytest.mark.parametrize(
    ("value", "pattern"),
    [(8, 8.0), (1, True), ("8", 8), (8, []), (8, [[8]]), ([2, 2], 2), (None, False), ({"a": 1}, {"a": 1.0}), (0, None)],
)
def test_values_are_compared_with_their_types(value: Any, pattern: Any) -> None:
    assert not matches({"x": pattern}, only({"x": [value]}))


def test_all_named_axes_must_match() -> None:
    combination = only({"x": [1], "y": [2]})
    assert matches({}, combination)
    assert not matches({"x": 1, "y": 3}, combination)
    assert not matches({"x": 1, "z": 2}, combination)


def test_entries_that_match_no_combination_are_noted() -> None:
    block = matrix(
        TWO,
        exclude=[{"batch": 16}, {"batch": 64}],
        skip=[{"when": {"batch": 8}, "reason": "slow"}, {"when": {"batch": 16}, "reason": "slow"}],
        xfail=[{"when": {"model": "z"}, "reason": "bug", "owner": "a team", "expires": "2026-12-31"}],
        settings=[{"when": {}}, {"when": {"model": ["y", "z"]}}],
        checks=[{"check": "exit_status"}, {"check": "files", "when": {"batch": 8.0}}],
    )
    assert unmatched(block) == [
        "`matrix.exclude[1]` matches no combination: {'batch': 64}",
        "`matrix.skip[1]` matches no combination: {'batch': 16}",
        "`matrix.xfail[0]` matches no combination: {'model': 'z'}",
        "`matrix.settings[1]` matches no combination: {'model': ['y', 'z']}",
        "`matrix.checks[1]` matches no combination: {'batch': 8.0}",
    ]


def test_an_included_combination_can_be_selected() -> None:
    skip = [{"when": {"batch": 64}, "reason": "slow"}]
    assert unmatched(matrix(TWO, include=[{"batch": 64}], skip=skip)) == []


def test_eleven_thousand_combinations_are_expanded() -> None:
    block = matrix(
        {name: list(range(10)) for name in "abcd"} | {"e": [0]},
        exclude=[{"a": number, "b": 10} for number in range(10)],
        include=[{"a": number, "b": 0, "c": 0, "d": 0} for number in range(10, 1010)],
    )
    assert len(expand(block)) == 11_000
