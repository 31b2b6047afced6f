"""`config show|get|explain|validate|diff`, for the configuration of a project and for a single file."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from toolbox.ground.system import places
from toolbox.testing import Workspace

TOPSAIL = """
    ci_presets:
      to_apply: [base]
      names: null
      base: {tests.size: 1}
      light:
        extends: [base]
        tests.size: 2
        tests.names: [a, b]
    tests:
      size: 0
      names: []
      twice: "@tests.size"
      text: "size {@tests.size} of {@tests.owner.name}"
      owner: {name: Zoë, since: 2024-01-31}
    secrets:
      dir: {name: the secrets, env_key: THE_SECRETS}
      token: token.txt
    token: "*$@secrets.token"
"""


@pytest.fixture
def topsail(workspace: Workspace) -> Workspace:
    """Return a workspace with a configuration file and without a project."""
    return workspace.write({"config.yaml": TOPSAIL, "held/token.txt": "t0p-s3cret\n"})


def show(workspace: Workspace, *argv: str) -> Any:
    """Run a `config` command with `--format=json`, and return its parsed output."""
    outcome = workspace.run("config", *argv, "--format=json", env={"THE_SECRETS": "held"})
    assert outcome.exit_code == 0, str(outcome)
    assert outcome.stderr == ""
    return outcome.json


def test_show_resolves_references_after_the_presets(topsail: Workspace) -> None:
    shown = show(topsail, "show", "--config_file=config.yaml", "--presets=light")
    assert shown["tests"]["twice"] == 2
    assert shown["tests"]["text"] == "size 2 of Zoë"
    assert shown["ci_presets"]["names"] == ["base", "light"]


def test_show_raw_prints_unresolved_references_without_contracts(topsail: Workspace) -> None:
    topsail.write({"config.yaml": TOPSAIL.replace("env_key: THE_SECRETS", "odd: 1")})
    shown = show(topsail, "show", "--config_file=config.yaml", "--presets=light", "--raw")
    assert shown["tests"]["text"] == "size {@tests.size} of {@tests.owner.name}"
    assert shown["tests"]["size"] == 2


@pytest.mark.parametrize("raw", [[], ["--raw"]])
def test_yaml_and_json_output_are_equal(topsail: Workspace, raw: list[str]) -> None:
    argv = ("show", "--config_file=config.yaml", *raw)
    text = topsail.run("config", *argv, env={"THE_SECRETS": "held"}).stdout
    assert json.loads(json.dumps(yaml.safe_load(text), default=str)) == show(topsail, *argv)


def test_show_prints_a_part_of_the_configuration(topsail: Workspace) -> None:
    assert show(topsail, "show", "--config_file=config.yaml", "--path=tests.owner.name") == "Zoë"


def test_a_secret_is_never_shown(topsail: Workspace) -> None:
    for argv in (["show"], ["get", "--path=token"], ["explain", "--path=token"], ["diff", "--overrides={tests: null}"]):
        outcome = topsail.run("config", *argv, "--config_file=config.yaml", env={"THE_SECRETS": "held"})
        assert outcome.exit_code == 0, str(outcome)
        assert "t0p-s3cret" not in outcome.stdout + outcome.stderr


def test_overrides_win_over_presets_and_flags_over_files(topsail: Workspace) -> None:
    topsail.write({"one.yaml": "tests.size: 5\n", "two.yaml": "tests.size: 6\n"})
    base = ("get", "--config_file=config.yaml", "--path=tests.size", "--presets=light")
    assert show(topsail, *base) == 2
    assert show(topsail, *base, "--overrides=one.yaml,two.yaml") == 6
    assert show(topsail, *base, "--overrides={tests.size: 7}") == 7


@pytest.mark.parametrize(
    ("path", "value"),
    [("greeting", "hello"), ("tag", "1.10"), ("commands.test[0]", "true"), ("checks", []), ("ci_presets.names", None)],
)
def test_get_prints_one_value_of_a_project(small: Workspace, path: str, value: object) -> None:
    assert show(small, "get", "small", path) == value
    assert yaml.safe_load(small.run("config", "get", "small", path).stdout) == value


def test_get_finds_a_key_with_dots(small: Workspace) -> None:
    assert show(small, "get", "small", 'ci_presets.failing["commands.test"]') == ["exit 7"]


def test_explain_names_each_layer_with_its_line_and_what_it_replaced(small: Workspace) -> None:
    small.write({"more.yaml": "# more\ngreeting: hi\n"})
    argv = ("explain", "small", "greeting", "--presets=both", "--overrides=more.yaml")
    lines = small.run("config", *argv).stdout.splitlines()
    assert lines[0] == "greeting = hi"
    file = "config/small.yaml"
    assert lines[1:] == [
        "  override file more.yaml (more.yaml:2) set it, in place of HELLO",
        f"  preset loud ({file}:5) set it, in place of hello",
        f"  {file}:12 wrote hello",
    ]


def test_the_explain_example_in_the_documentation_is_correct(workspace: Workspace) -> None:
    page = (places.builtin_root() / "docs/configuration.md").read_text()
    command, _, printed = page.partition("$ ./run_toolbox.py ")[2].partition("```")[0].partition("\n")
    explained = workspace.run(*command.split()).stdout
    assert explained.replace(f"{places.builtin_root()}/", "") == printed


def test_explain_shows_the_line_of_an_unchanged_value(small: Workspace) -> None:
    explained = small.run("config", "explain", "small", "tag").stdout
    assert explained == "tag = '1.10'\n  config/small.yaml:13 wrote it\n"


def test_explain_shows_where_a_reference_leads(topsail: Workspace) -> None:
    outcome = topsail.run("config", "explain", "--config_file=config.yaml", "--path=tests.twice")
    assert outcome.stdout.startswith("tests.twice = '@tests.size' --> 1\n")


def test_validate_confirms_a_valid_configuration(topsail: Workspace) -> None:
    outcome = topsail.run("config", "validate", "--config_file=config.yaml", env={"THE_SECRETS": "held"})
    assert (outcome.exit_code, outcome.stdout) == (0, "config.yaml is valid\n")


def test_validate_reads_the_secrets(topsail: Workspace) -> None:
    outcome = topsail.run("config", "validate", "--config_file=config.yaml", env={"THE_SECRETS": "projects"})
    assert outcome.exit_code == 2
    assert "`token`: secret '*$@secrets.token': the file projects/token.txt" in outcome.stderr


def test_diff_shows_old_and_new_values_and_their_layers(small: Workspace) -> None:
    (row,) = [row for row in show(small, "diff", "small", "--presets=loud") if row["path"] == "greeting"]
    assert (row["before"], row["after"]) == ("hello", "HELLO")
    assert row["by"] == "preset loud (config/small.yaml:5)"
    text = small.run("config", "diff", "small", "--overrides={tag: null}").stdout
    assert text == "  tag: '1.10' --> null  (--overrides)\n"


def test_diff_reports_that_nothing_differs(small: Workspace) -> None:
    assert small.run("config", "diff", "small").stdout == "there are no differences\n"


def test_a_configuration_file_can_come_from_the_environment(small: Workspace) -> None:
    outcome = small.run("config", "get", "--path=tag", env={"TOPGALLANT_FROM_CONFIG_FILE": "config/small.yaml"})
    assert yaml.safe_load(outcome.stdout) == "1.10"


def test_a_duplicate_key_is_a_warning_on_stderr(workspace: Workspace) -> None:
    workspace.write({"config.yaml": "a: 1\na: 2\n"})
    outcome = workspace.run("config", "get", "--config_file=config.yaml", "--path=a")
    assert (outcome.exit_code, outcome.stdout) == (0, "2\n")
    assert outcome.stderr == "warning: config.yaml:2: `a` is already in line 1: the last value is used\n"


def test_validate_names_each_scalar_that_may_be_text_once(small: Workspace) -> None:
    configuration = small.directory / "config/small.yaml"
    versions = "".join(f"- {minor}.10\n" for minor in range(1, 9))
    configuration.write_text(f"versions:\n{versions}{configuration.read_text()}lr: 1e-4\n")
    outcome = small.run("config", "validate", "small")
    assert (outcome.exit_code, outcome.stdout) == (0, "config/small.yaml is valid\n")
    lines = outcome.stderr.splitlines()
    assert lines[0] == 'warning: config/small.yaml:2: `1.10` is read as 1.1: write "1.10" for the text, or 1.1'
    assert len(lines) == 8
    run = small.run("project", "run", "small")
    shown = [line for line in run.stderr.splitlines() if line.startswith("warning: ")]
    assert shown[:5] == lines[:5]
    assert "3 more scalars without quotes may be meant as text" in shown[5]
    assert len(shown) == 6


def test_explain_also_explains_what_a_reference_refers_to(topsail: Workspace) -> None:
    outcome = topsail.run("config", "explain", "--config_file=config.yaml", "--path=tests.twice", "--presets=light")
    assert outcome.stdout.splitlines() == [
        "tests.twice = '@tests.size' --> 2",
        "  config.yaml:12 wrote it",
        "  tests.size = 2",
        "    preset light (config.yaml:7) set it, in place of 1",
        "    preset base (config.yaml:4) set it, in place of 1",
        "    preset base (config.yaml:4) set it, in place of 0",
        "    config.yaml:10 wrote 0",
    ]


MATRIX = """\
    model: {size: 8}
    copied: "@model"
    matrix:
      axes:
        batch: [8, 16]
      workload: {command: ["@cell.batch", "@cell", "@cell.bach", "x={@cell.batch}", "@copied.size"]}
"""


@pytest.mark.parametrize(
    ("index", "lines"),
    [
        (
            0,
            [
                "  @cell.batch is the value of the axis `batch`, which differs between cells",
                "  matrix.axes.batch = [8, 16]",
                "    config.yaml:5 wrote it",
            ],
        ),
        (1, ["  @cell stands for all axis values of a cell of the matrix"]),
        (2, ["  @cell.bach is a value of a cell of the matrix, but the matrix has no axis `bach`"]),
        (3, []),
        (
            4,
            [
                "  copied = '@model' --> {size: 8}",
                "    config.yaml:2 wrote it",
                "    model = {size: 8}",
                "      config.yaml:1 wrote it",
            ],
        ),
    ],
)
def test_explain_shows_where_values_of_a_cell_come_from(workspace: Workspace, index: int, lines: list[str]) -> None:
    workspace.write({"config.yaml": MATRIX})
    path = f"--path=matrix.workload.command[{index}]"
    outcome = workspace.run("config", "explain", "--config_file=config.yaml", path)
    assert outcome.exit_code == 0, str(outcome)
    first, second, *rest = outcome.stdout.splitlines()
    assert first.startswith(f"matrix.workload.command[{index}] = ")
    assert second == "  config.yaml:6 wrote it"
    assert rest == lines


def test_explain_follows_a_reference_on_the_way_to_a_value(workspace: Workspace) -> None:
    workspace.write({"config.yaml": MATRIX})
    outcome = workspace.run("config", "explain", "--config_file=config.yaml", "--path=copied.size")
    assert outcome.stdout.startswith("copied = '@model' --> {size: 8}\n  config.yaml:2 wrote it\n  model = ")
