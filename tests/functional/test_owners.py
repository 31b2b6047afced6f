"""The owner of a cell is named beside its failure, and has a page in the run directory."""

from __future__ import annotations

import json

import lxml.html

from tests.functional.grid import Grid
from tests.functional.grid import grid as grid  # noqa: PLC0414  # re-exports the fixture


def test_the_owner_of_a_failed_cell_is_named_and_has_a_page(grid: Grid) -> None:
    owners = [{"when": {}, "owner": "The Team"}, {"when": {"x": ["a", "b"]}, "owner": "ada/eva"}]
    grid.configure("abc", owners=owners, blocks={"results": {"database": "team.sqlite"}})
    assert grid.mark("fail-a").run().exit_code == 1
    outcome = grid.mark("fail-b").run()
    assert [line for line in outcome.stdout.splitlines() if "owner: " in line] == ["  owner: ada/eva"] * 2, str(outcome)
    directory = max(grid.workspace.runs())
    plan = json.loads((directory / "plan.json").read_text())
    assert [cell["owner"] for cell in plan["cells"]] == ["ada/eva", "ada/eva", "The Team"]
    assert sorted(page.name for page in (directory / "owners").iterdir()) == ["The_Team.html", "ada_eva.html"]
    page = lxml.html.parse(directory / "owners/ada_eva.html")
    failures = [" ".join("".join(map(str, item.itertext())).split()) for item in page.findall(".//ol/li")]
    assert [text.split(" exit")[0] for text in failures] == [
        "newly failing ✗ failed (product) x=b",
        "✗ failed (product) x=a",
    ]


def test_a_plan_with_an_owner_is_resumed(grid: Grid) -> None:
    grid.configure("ab", owners=[{"when": {"x": "a"}, "owner": "ada"}])
    assert grid.mark("fail-a").run().exit_code == 1
    grid.unmark("fail-a")
    outcome = grid.resume("--failed")
    assert outcome.exit_code == 0, str(outcome)
    assert "No cell of this owner failed." in (grid.directory / "owners/ada.html").read_text()
