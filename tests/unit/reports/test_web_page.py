"""The templates of pages are compiled once, not in each process. Pages show numbers with few digits."""

from __future__ import annotations

import sys
from pathlib import Path

import jinja2
import pytest

from toolbox.reports import _web_page


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder whose `__pycache__` has the compiled templates."""
    monkeypatch.setattr(_web_page, "_HERE", tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    return tmp_path


def render(text: str) -> str:
    """Render a template in a new environment, as a new process does."""
    loader = jinja2.DictLoader({"page": text})
    return (
        jinja2.Environment(loader=loader, bytecode_cache=_web_page._BytecodeCache()).get_template("page").render()
    )  # no page


def test_a_template_that_has_changed_is_compiled_again(here: Path) -> None:
    (here / "__pycache__").mkdir()
    assert [render("one"), render("one"), render("two")] == ["one", "one", "two"]
    assert len(list((here / "__pycache__").iterdir())) == 1


def test_another_compiler_uses_no_template_of_this_one(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "__pycache__").mkdir()
    render("one")
    monkeypatch.setattr(jinja2, "__version__", "another")
    render("one")
    assert len(list((here / "__pycache__").iterdir())) == 2


def test_a_page_needs_no_folder_for_compiled_templates(here: Path) -> None:
    assert render("one") == "one"
    assert not list(here.iterdir())


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0035043, "0.0035043"),
        (1234.56, "1,234.6"),
        (51318.2, "51,318"),
        (99999.7, "100,000"),
        (-148340.4, "-148,340"),
        (1e20, "1e+20"),
    ],
)
def test_a_number_has_five_digits_or_all_before_the_point(number: float, text: str) -> None:
    assert _web_page.digits(number) == text
