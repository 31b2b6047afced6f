"""The examples of docs/extending.md form a working workspace, and failing extensions do not break other parts."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolbox.ground.system import environ, filesystem, places
from toolbox.testing import Workspace

ROOT = places.builtin_root()
PAGE = ROOT / "docs/extending.md"
# Matches a path in backquotes on its own line, and the code block below that line.
EXAMPLE = re.compile(r"^`(?P<path>[\w./]+)`\n\n```\w+\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
# The names of extensions in the suites that cover a kind of extension. Some suites belong to a feature.
COVERED = {
    "plugins": ["[steady]", "[percentile]", "-totals]", "[slowest]"],
    "commands": ["[disk measure]", "[disk_measure]"],
    "backends_endings": ["[few_threads]"],
    "forges": ["[woodpecker]"],
    "notifiers": ["[logbook]"],
}
SUITES = {file.stem.removeprefix("test_"): file for file in sorted(ROOT.glob("tests/**/conformance/test_*.py"))}


def examples() -> dict[str, str]:
    """Return the example files of docs/extending.md by their paths."""
    return {match["path"]: match["text"] for match in EXAMPLE.finditer(PAGE.read_text(encoding="utf-8"))}


@pytest.fixture
def documented(workspace: Workspace) -> Workspace:
    """Return a workspace with all example files of docs/extending.md."""
    kinds = {path.partition("/")[0] for path in examples()}
    assert kinds == {
        "commands", "roles", "checks", "comparators", "metrics",
        "backends", "forges", "notifiers", "reports", "page_sections", "projects", "config", "command_args"
    }  # fmt: skip
    return workspace.write(examples())


def test_the_examples_of_the_documentation_work_together(documented: Workspace) -> None:
    outcome = documented.run("project", "run", "probe", "--presets=many")
    assert outcome.exit_code == 0, str(outcome)
    run = documented.run_directory()
    assert (run / "totals.txt").read_text() == "passed 2\n"
    assert f"the report `totals` is {run / 'totals.txt'}" in outcome.stderr
    assert (run / "000__prepare/000__disk__measure/artifacts/free.txt").read_text().split()[0] == "Avail"
    page = (run / "report.html").read_text()
    assert re.search(r'<h2 id="section-slowest">Slowest cell</h2>\s*<p class="slowest"><a href="#c-', page)
    assert ".slowest { font-weight: 600; }" in page
    checks = [check["check"] for step in documented.summary()["steps"] for check in step["checks"]]
    assert checks.count("steady") == 2
    assert {"wait", "waits"} <= {
        metric["metric"] for step in documented.summary()["steps"] for metric in step["metrics"]
    }


def test_the_notifier_of_the_documentation_is_called_when_runs_begin_to_fail(documented: Workspace) -> None:
    impossible = "--overrides={matrix.checks: [{check: metric, metric: wait, upper: 0}]}"
    for _ in range(2):
        assert documented.run("project", "run", "probe", impossible, env={"CI": "true"}).exit_code == 1
    run = documented.runs()[0].name
    assert (documented.directory / "messages.txt").read_text() == f"probe fails: {run}\n"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("{probe.waits: 1}", "`probe.waits` must be "),
        ("{targets.here: {backend: few_thread}}", "unknown backend `few_thread`: did you mean few_threads"),
        ("{matrix.checks: [{check: steday, metric: waits}]}", "unknown check `steday`: did you mean steady"),
        ("{matrix.metrics: {x: {source: percentle, file: f}}}", "unknown source `percentle`: did you mean percentile"),
    ],
)
def test_misuse_of_an_extension_is_reported_before_the_run(documented: Workspace, override: str, message: str) -> None:
    outcome = documented.run("project", "run", "probe", f"--overrides={override}")
    assert outcome.exit_code == 2, str(outcome)
    assert message in outcome.stderr
    assert documented.runs() == []


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    """Add a directory for packages to the search path of the processes of the test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path / "site"))
        yield tmp_path / "site"


def test_a_feature_of_an_installed_package_has_the_shape_of_a_workspace(workspace: Workspace, site: Path) -> None:
    for path, text in examples().items():
        filesystem.write_text(site / "topgallant_features/acme" / path, text)
    outcome = workspace.run("project", "run", "probe", "--presets=many")
    assert outcome.exit_code == 0, str(outcome)
    run = workspace.run_directory()
    assert (run / "totals.txt").read_text() == "passed 2\n"
    assert (run / "000__prepare/000__disk__measure/artifacts/free.txt").read_text().split()[0] == "Avail"
    assert "acme/projects" in workspace.run("project", "run", "prob").stderr


def test_extensions_of_the_workspace_win_over_those_of_installed_packages(documented: Workspace, site: Path) -> None:
    theirs = (documented.directory / "checks/steady.py").read_text().replace("spread <= self.spread", "False")
    files = {
        "one/checks/steady.py": theirs,
        "two/checks/never.py": "from topgallant_features.one.checks.steady import Check\n",
        "two/reports/acme.py": "def write(summary): return summary.directory / 'acme'\n",
    }
    for path, text in files.items():
        filesystem.write_text(site / "topgallant_features" / path, text)
    outcome = documented.run("project", "run", "probe", "--phases=test")
    assert outcome.exit_code == 0, str(outcome)
    assert "the report `acme` is " in outcome.stderr
    checks = "{matrix.checks: [{check: never, metric: waits}]}"
    outcome = documented.run("project", "run", "probe", "--phases=test", f"--overrides={checks}")
    assert outcome.exit_code == 1, str(outcome)


def test_the_conformance_suite_covers_a_workspace(documented: Workspace) -> None:
    only = [
        "-k",
        "steady or percentile or totals or slowest or woodpecker or logbook or disk or (few_threads and program)",
        "-v",
        "-p",
        "no:cacheprovider",
    ]
    suites = COVERED.keys() & SUITES.keys()
    assert suites >= {"plugins", "commands", "backends_endings"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *only, *(SUITES[name] for name in sorted(suites))],
        env={**environ.everything(), "TOPGALLANT_WORKSPACE": str(documented.directory)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    for name in (name for suite in suites for name in COVERED[suite]):
        assert name in done.stdout, f"{name} is not covered"


BROKEN = {
    "an error": "raise RuntimeError('no luck')\n",
    "an exit": "raise SystemExit(0)\n",
    "an error of write": "def write(summary): raise KeyError('no luck')\n",
    "an exit of write": "def write(summary): raise SystemExit(3)\n",
    "nothing": "",
    "a value": "write = 5\n",
    "no Python": "def (\n",
}


def test_failing_reports_do_not_change_the_verdict(small: Workspace) -> None:
    small.write({f"reports/r{number}.py": text for number, text in enumerate(BROKEN.values())})
    small.write({"reports/works.py": "def write(summary): (summary.directory / 'works').touch()\n"})
    outcome = small.run("project", "run", "small")
    assert outcome.exit_code == 0, str(outcome)
    for number, kind in enumerate(BROKEN):
        assert f"warning: the report `r{number}` of this run could not be written" in outcome.stderr, kind
    assert {"report.html", "junit.xml", "works"} <= {path.name for path in small.run_directory().iterdir()}


SECTION = """
from toolbox.reports.page.sections import CellPart, PagePart, PageSection
class Section(PageSection):
    title = "Extra"
"""
BROKEN_SECTIONS = {
    "an error": "raise RuntimeError('no luck')\n",
    "an exit": "raise SystemExit(0)\n",
    "nothing": "",
    "a value": "Section = 5\n",
    "no title": "class Section:\n    def __init__(self, run): pass\n",
    "an error of prepare": f"{SECTION}    def prepare(self): raise KeyError('no luck')\n",
    "an exit of of_page": f"{SECTION}    def of_page(self, cells): raise SystemExit(3)\n",
    "a text in place of a part": f"{SECTION}    def of_page(self, cells): return 'text'\n",
    "an error of of_cell": f"{SECTION}    def of_cell(self, cell): 1 / 0\n",
    "a text in place of a link": f"{SECTION}    def of_cell(self, cell): return CellPart('a', 'link')\n",
}


def test_failing_sections_do_not_prevent_the_page(documented: Workspace) -> None:
    documented.write({f"page_sections/r{number}.py": text for number, text in enumerate(BROKEN_SECTIONS.values())})
    works = f"{SECTION}    def of_page(self, cells): return PagePart('<i>\\x1b[31m plain \\u202e')\n"
    documented.write({"page_sections/works.py": works})
    outcome = documented.run("project", "run", "probe", "--phases=test")
    assert outcome.exit_code == 0, str(outcome)
    page = (documented.run_directory() / "report.html").read_text()
    assert "&lt;i&gt; plain \n" in page, "text that is not Markup is escaped, and has no control characters"
    for number, kind in enumerate(BROKEN_SECTIONS):
        assert outcome.stderr.count(f"warning: the section `r{number}` of the report is missing: ") == 1, kind
        assert f"the section `r{number}` of the report is missing: " in page, kind


def test_a_report_is_written_again_on_demand(small: Workspace) -> None:
    assert small.run("project", "run", "small").exit_code == 0
    small.write({"reports/late.py": "def write(summary): return summary.directory / 'late.txt'\n"})
    outcome = small.run("results", "report", str(small.run_directory()))
    assert [Path(line).name for line in outcome.stdout.splitlines()] == ["junit.xml", "report.html", "late.txt"]


def test_a_check_and_a_source_that_raise_fail_their_cell_and_are_named(documented: Workspace) -> None:
    for kind, what in (("checks/steady.py", "def judge(self, "), ("metrics/percentile.py", "def read(self, ")):
        text = (documented.directory / kind).read_text()
        text = re.sub(rf"({re.escape(what)}.*\n.*\n)", r"\1        raise KeyError('no luck')\n", text)
        documented.write({kind: text})
    outcome = documented.run("project", "run", "probe", "--phases=test")
    assert outcome.exit_code == 1, str(outcome)
    message = documented.summary()["message"]
    assert "steady: the check is broken: KeyError: 'no luck'" in message
    assert "the source is broken: KeyError: 'no luck'" in message


def test_a_command_of_the_workspace_replaces_a_builtin_one_with_a_note(small: Workspace) -> None:
    small.write(
        {
            "commands/config.py": '''
                """More about configurations."""


                class Config:
                    """More about configurations."""

                    def get(self, name: str) -> str:
                        """
                        Say a name.

                        Args:
                            name: the name.
                        """
                        return f"ours is {name}"
            '''
        }
    )
    outcome = small.run("config", "get", "small")
    assert outcome.stdout == "ours is small\n"
    assert "commands/config.py replaces the command `config get` of " in outcome.stderr
    assert small.run("config", "validate", "small").exit_code == 0


def test_a_project_can_contain_a_command_and_its_role(small: Workspace) -> None:
    files = {
        "projects/small/commands/anvil.py": '''
            """Work on an anvil."""
            from toolbox.api import role


            class Anvil:
                """Work on an anvil."""

                @role
                def strike(self, times: int = 1) -> None:
                    """
                    Strike the anvil.

                    Args:
                        times: how often to strike.
                    """
        ''',
        "projects/small/roles/anvil_strike/tasks/main.yml": """
            - name: Strike
              ansible.builtin.copy:
                content: "{{ anvil_strike_times }} strikes"
                dest: "{{ artifact_extra_logs_dir }}/artifacts/strikes.txt"
                mode: "0600"
        """,
        "projects/small/orchestration.py": '''
            """Strikes."""
            from toolbox.orchestration import run


            def test():
                run.run_toolbox_from_config("anvil", "strike")
        ''',
        "command_args/small.yaml.j2": "anvil strike:\n  times: 3\n",
    }
    small.write(files)
    assert "anvil        Work on an anvil." in small.run().stdout
    assert "strike  Strike the anvil." in small.run("anvil").stdout
    outcome = small.run("project", "run", "small")
    assert outcome.exit_code == 0, str(outcome)
    kept = small.run_directory() / "000__test/000__anvil__strike/artifacts/strikes.txt"
    assert kept.read_text() == "3 strikes"
    outcome = small.run("from_config", "anvil", "strike", "--project=small", "--extra={times: 4}")
    assert outcome.exit_code == 0, str(outcome)
    assert [file.read_text() for file in small.artifacts.glob("toolbox/*/artifacts/strikes.txt")] == ["4 strikes"]


def test_a_command_of_the_workspace_wins_over_one_of_a_project(small: Workspace) -> None:
    group = '''
        """Say where a command is from."""


        class Origin:
            """Say where a command is from."""

            def tell(self) -> str:
                """
                Say it.
                """
                return "PLACE"
    '''
    folders = ("commands", "projects/small/commands")
    small.write({f"{folder}/origin.py": group.replace("PLACE", folder) for folder in folders})
    assert small.run("origin", "tell").stdout == "commands\n"
