"""A workspace is found from the directories below it or by a variable, and a run can be resumed from any directory."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from toolbox.ground.system import places
from toolbox.testing import Workspace

RELATIVE = {
    "projects/moving/orchestration.py": '''
        """Changes the working directory, as TOPSAIL's orchestrations do."""
        import os
        import tempfile
        from pathlib import Path

        from toolbox.orchestration import run


        def prepare():
            print(Path("shared/data.txt").read_text())
            os.chdir(tempfile.gettempdir())


        def test():
            run.run_toolbox("greeter", "greet", name="Ada")
            if not Path(os.environ["HOME"], "ready").exists():
                raise RuntimeError("not ready")
    ''',
    "config/moving.yaml": "results: {database: results.db}\n",
    "commands/greeter.py": '''
        """Greets."""
        from toolbox.api import role


        class Greeter:
            """Greets."""

            @role
            def greet(self, name: str) -> None:
                """
                Greet a person.

                Args:
                    name: the name of the person.
                """
    ''',
    "roles/greeter_greet/tasks/main.yml": """
        - name: Greet
          ansible.builtin.debug:
            msg: "hello {{ greeter_greet_name }}"
    """,
    "shared/data.txt": "data",
}


@pytest.fixture
def below(small: Workspace) -> Path:
    """Return a directory below the workspace."""
    found = small.directory / "config/deep"
    found.mkdir(parents=True)
    return found


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """Return a directory outside of any workspace."""
    found = tmp_path / "elsewhere"
    found.mkdir()
    return found


def test_a_workspace_is_found_from_a_directory_below_it(small: Workspace, below: Path) -> None:
    outcome = small.run("project", "run", "small", cwd=below)
    assert outcome.exit_code == 0, str(outcome)
    assert small.summary()["verdict"] == "passed"
    assert small.run("project", "status", cwd=below).stdout.count("passed") >= 1


def test_a_workspace_is_found_by_the_environment_variable(small: Workspace, elsewhere: Path) -> None:
    named = {"TOPGALLANT_WORKSPACE": str(small.directory)}
    outcome = small.run("project", "run", "small", env=named, cwd=elsewhere)
    assert outcome.exit_code == 0, str(outcome)
    assert small.summary()["verdict"] == "passed"


def test_a_workspace_that_is_not_a_directory_is_wrong_usage(small: Workspace) -> None:
    outcome = small.run("project", "list", env={"TOPGALLANT_WORKSPACE": "/nonexistent"})
    assert (outcome.exit_code, outcome.stdout) == (2, "")
    assert "$TOPGALLANT_WORKSPACE is /nonexistent, which is not a directory" in outcome.stderr


def test_an_unknown_project_lists_the_searched_folders(small: Workspace, below: Path, elsewhere: Path) -> None:
    outcome = small.run("project", "run", "smal", cwd=below)
    assert outcome.exit_code == 2
    assert f"searched {small.directory}/projects and " in outcome.stderr
    outcome = small.run("project", "run", "smal", cwd=elsewhere)
    assert "TOPGALLANT_WORKSPACE" in outcome.stderr
    assert len(outcome.stderr.splitlines()) <= 5


def test_a_run_can_be_resumed_from_any_directory(small: Workspace, elsewhere: Path) -> None:
    failing = json.dumps({"commands.test": ["pwd >> $ARTIFACT_DIR/pwd; test -e $HOME/ready"]})
    assert small.run("project", "run", "small", f"--overrides={failing}").exit_code == 1
    (small.home / "ready").touch()
    outcome = small.run(
        "project", "resume", os.path.relpath(small.run_directory(), elsewhere), "--failed", cwd=elsewhere
    )
    assert outcome.exit_code == 0, str(outcome)
    directories = [line for file in small.run_directory().glob("*__test*/pwd") for line in file.read_text().split()]
    assert set(directories) == {str(small.directory)}, "commands run in the same directory before and after the resume"


def test_a_run_can_be_resumed_after_its_repository_was_moved(small: Workspace, elsewhere: Path, tmp_path: Path) -> None:
    failing = json.dumps({"commands.test": ["test -e $HOME/ready"]})
    assert small.run("project", "run", "small", f"--overrides={failing}").exit_code == 1
    (small.home / "ready").touch()
    run = small.run_directory().relative_to(small.directory)
    shutil.move(small.directory, tmp_path / "moved")
    home = {"HOME": str(tmp_path / "moved/.home")}
    outcome = small.run("project", "resume", str(tmp_path / "moved" / run), "--failed", env=home, cwd=elsewhere)
    assert outcome.exit_code == 0, str(outcome)


def test_chdir_in_an_orchestration_keeps_roles_and_store(workspace: Workspace, elsewhere: Path) -> None:
    workspace.write(RELATIVE)
    outcome = workspace.run("project", "run", "moving")
    assert "not ready" in outcome.stdout, str(outcome)
    (workspace.home / "ready").touch()
    outcome = workspace.run("project", "resume", str(workspace.run_directory()), "--failed", cwd=elsewhere)
    assert outcome.exit_code == 0, str(outcome)
    assert (workspace.directory / "results.db").exists()


def test_chdir_in_an_orchestration_keeps_commands_checks_and_files(workspace: Workspace) -> None:
    orchestration = f"""
        import os
        import sys

        from toolbox.orchestration import config, matrix, run


        def prepare():
            os.chdir("/")
            config.project.set_config("name", "Ada")


        def test():
            run.run_toolbox_from_config("greeter", "greet")
            run.run([sys.executable, "{places.builtin_root()}/run_toolbox.py", "greeter", "greet", "--name=Bob"])
            matrix.run()
    """
    check = """
        from pydantic import BaseModel

        from toolbox.ground.model.evidence import Judgement


        class Check(BaseModel):
            def judge(self, evidence):
                return Judgement(True, "it was judged")
    """
    config = """
        name: nobody
        matrix:
          workload: {command: [cat, ../src/data.txt], files: {data.txt: shared/data.txt}}
          checks: [{check: judged}]
    """
    greeter = {name: text for name, text in RELATIVE.items() if name.startswith(("commands", "roles", "shared"))}
    files = {"projects/moving/orchestration.py": orchestration, "checks/judged.py": check, "config/moving.yaml": config}
    workspace.write({**greeter, **files, "command_args/moving.yaml.j2": "greeter greet:\n  name: {{ name }}\n"})
    outcome = workspace.run("project", "run", "moving")
    assert outcome.exit_code == 0, str(outcome)
    greeted = list(workspace.run_directory().glob("001__test/*__greeter__greet/_ansible.log"))
    assert ["hello Ada" in file.read_text() for file in sorted(greeted)] == [True, False]


def test_a_child_process_of_a_run_finds_its_workspace(small: Workspace) -> None:
    seen = {"commands.test": ['cd / && echo "$TOPGALLANT_WORKSPACE" > "$ARTIFACT_DIR/seen"']}
    assert small.run("project", "run", "small", f"--overrides={json.dumps(seen)}").exit_code == 0
    found = (small.run_directory() / "001__test/seen").read_text().strip()
    assert found == str(small.directory)
