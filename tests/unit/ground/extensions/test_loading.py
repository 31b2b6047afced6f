"""Extensions in the configuration: their modules are found by name, and their fields are validated."""

from pathlib import Path
from typing import Any

import pytest

from toolbox.ground.extensions import loading, protocols
from toolbox.ground.system import places
from toolbox.judges.checks import exit_status


def parse(spec: Any) -> Any:
    return loading.parse(protocols.CHECKS, spec)


def test_the_name_is_that_of_a_module_and_the_rest_are_its_fields() -> None:
    check = parse({"check": "exit_status", "expected": 3})
    assert isinstance(check, exit_status.Check)
    assert (check.expected, check.file) == (3, exit_status.Check().file)


def test_parsing_does_not_change_the_mapping() -> None:
    spec = {"check": "exit_status", "expected": 3}
    parse(spec)
    assert spec == {"check": "exit_status", "expected": 3}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"check": "exit_statsu"}, r"^unknown check `exit_statsu`: did you mean exit_status\?$"),
        ({"check": "qqqq"}, r"^unknown check `qqqq`: the checks are .*exit_status.*$"),
        ({"check": "../model/errors"}, "unknown check"),
        ({"check": "__init__"}, "unknown check"),
        ({"check": "exit_status.Check"}, "unknown check"),
        ({"check": ""}, "unknown check ``"),
        ({"check": None}, "unknown check `None`"),
        ({"check": ["exit_status"]}, "unknown check"),
        ({"expected": 3}, "unknown check `None`"),
        ("exit_status", r"^a check must be a mapping `{check: NAME, ...}`, not 'exit_status'$"),
        (None, "a check must be a mapping .*, not null"),
        (["x" * 200], r"^a check must be a mapping .*, not \['x+\.\.\.$"),
    ],
)
def test_an_unknown_name_is_refused_with_the_most_similar_name(spec: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(spec)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"expected": "three"}, r"^check `exit_status`: expected: must be a valid integer"),
        ({"expectde": 3}, r"^check `exit_status`: expectde: Extra inputs are not permitted$"),
        ({"expected": "x", "y": 1}, r"^check `exit_status`: expected: .*; y: Extra inputs"),
    ],
)
def test_all_wrong_fields_are_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse({"check": "exit_status", **fields})


def test_an_extension_that_says_nothing_about_other_fields_has_none(tmp_path: Path) -> None:
    check = (
        "from pydantic import BaseModel\n\n\nclass Check(BaseModel):\n    limit: int = 1\n\n    def judge(self, _): ..."
    )
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks/mine.py").write_text(check)
    with places.pinned(tmp_path), pytest.raises(ValueError, match=r"'limt' is an unknown field: did you mean limit\?"):
        parse({"check": "mine", "limt": 2})


def test_an_error_of_the_whole_model_names_no_field() -> None:
    with pytest.raises(ValueError, match=r"^check `metric`: set `lower`, `upper` or both, or `bounds: auto`$"):
        parse({"check": "metric", "metric": "t"})
