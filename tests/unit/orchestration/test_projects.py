"""Projects are found by their location, and phases by their names."""

from collections.abc import Callable
from pathlib import Path

import pytest

from toolbox.ground.model.errors import ConfigurationError, UsageError
from toolbox.orchestration import projects


@pytest.fixture
def root(repository: Path) -> Path:
    (repository / "projects").mkdir()
    return repository


def write(root: Path, source: str) -> projects.ProjectFiles:
    file = root / "projects/tiny/orchestration.py"
    file.parent.mkdir(parents=True)
    file.write_text(source)
    return projects.find("tiny")


def test_the_files_of_a_project_are_below_its_root(root: Path) -> None:
    found = write(root, "")
    assert found.folder == root / "projects/tiny"
    assert found.config == root / "config/tiny.yaml"
    assert found.command_args == root / "command_args/tiny.yaml.j2"
    assert found.contracts[-1] == root / "projects/tiny/contracts"


@pytest.mark.parametrize(
    ("source", "summary"),
    [
        ('"""What it is for."""\n', "What it is for."),
        ('\n\n"""What it is for.\n\nMore."""', "What it is for."),
        ("", ""),
    ],
)
def test_the_summary_is_the_first_line_of_the_orchestration(root: Path, source: str, summary: str) -> None:
    assert write(root, source).summary == summary


def test_an_unknown_project_suggests_a_similar_name() -> None:
    with pytest.raises(UsageError, match="unknown project `trainin_e2e`: did you mean training_e2e"):
        projects.find("trainin_e2e")


def test_phases_are_functions_by_name_in_their_order(root: Path) -> None:
    found = write(
        root, "def post_cleanup(): return 4\ndef test(): return 3\nprepare = 'no function'\ndef helper(): ...\n"
    )
    phases = projects.phases(found)
    assert list(phases) == ["test", "post_cleanup"]
    assert [function() for function in phases.values()] == [3, 4]


def test_an_orchestration_can_import_files_beside_it(root: Path) -> None:
    found = write(root, "from projects.tiny import helper\ntest = helper.work\n")
    (root / "projects/tiny/helper.py").write_text("def work(): return 'from beside'\n")
    assert projects.phases(found)["test"]() == "from beside"


@pytest.mark.parametrize(
    ("source", "message"),
    [("def test(:", "SyntaxError"), ("import no_such_module", "no_such_module"), ("1 / 0", "ZeroDivisionError")],
)
def test_a_broken_orchestration_is_reported_with_its_file(root: Path, source: str, message: str) -> None:
    found = write(root, source)
    with pytest.raises(ConfigurationError, match=message) as caught:
        projects.phases(found)
    assert str(root / "projects/tiny/orchestration.py") in str(caught.value)


def available() -> dict[str, Callable[[], object]]:
    return dict.fromkeys(projects.PHASES, list)


def test_all_phases_are_selected_by_default() -> None:
    assert list(projects.select(available(), None)) == list(projects.PHASES)
    assert list(projects.select(available(), [])) == []
    assert list(projects.select(available(), ["test", "pre_cleanup"])) == ["pre_cleanup", "test"]


@pytest.mark.parametrize(
    ("wanted", "message"), [("tset", "did you mean test"), ("nothing", "the phases of the project")]
)
def test_an_unknown_phase_is_named(wanted: str, message: str) -> None:
    with pytest.raises(UsageError, match=f"unknown phase `{wanted}`: .*{message}"):
        projects.select(available(), ["test", wanted])


@pytest.mark.parametrize("name", ["x" * 5000, "../projects", "/etc", "..", ".", ""])
def test_a_path_or_an_overlong_name_is_not_a_project(name: str) -> None:
    with pytest.raises(UsageError, match=r"unknown project|is not a project"):
        projects.find(name)
