"""A comment may change only fields that the configuration lists, and never programs, targets or secrets."""

import contextlib
import textwrap
from pathlib import Path
from typing import Any

import pytest

from toolbox.config import comment_limits, contract
from toolbox.config.configuration import Configuration, Request
from toolbox.ground.model.errors import ConfigurationError, UsageError
from toolbox.testing import Workspace

CONFIG = """
ci:
  overridable: [training.settings.*, "matrix.**", "names.*", shared, "**.any", "hosts[0]", "secrets.**", "ci.**"]
ci_presets:
  small: {training.settings: {steps: 1, rate: 2}}
secrets: {dir: {env_key: VAULT}, token: token-file}
names: {secret: token-file, host: one, program: python3, argument: x, label: l}
password: "*$@names.secret"
shared: &shared {run: "make", other: 1}
training: {settings: {steps: 10, rate: 0.1}, corpus: {any: 1, size: 2}}
hosts: [a, b]
targets: {here: {backend: local, labels: ["@names.host"]}}
clusters: {}
results: {record: true}
matrix:
  axes: {batch: [1, 2], training.settings.steps: [10, 20]}
  max_cost: 5
  max_cells: 40
  include: [{batch: 4}]
  workload:
    command: ["@names.program", "{@names.argument}"]
    env: {A: "1"}
    files: {"x": "y"}
    write: {"a.txt": "@names.label"}
    pod: {image: "a:1", secrets: {}}
    extra: *shared
"""


def changed(tmp_path: Path, overrides: dict[str, Any], *presets: str, config: str = CONFIG) -> Configuration:
    """Return the configuration with the overrides and presets of a comment."""
    (tmp_path / "p.yaml").write_text(textwrap.dedent(config))
    request = Request(tmp_path / "p.yaml", presets, overrides=overrides, is_from_outside=True)
    return Configuration.load(request)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("training.settings.steps", 50),
        ("training.settings", {"steps": 50, "rate": 0.1}),
        ("training", {"settings": {"steps": 5}, "corpus": {"any": 1, "size": 2}}),
        ("training.corpus.any", [1, {"a": "b"}]),
        ("hosts[0]", "c"),
        ("hosts[-2]", "c"),
        ("hosts", ["c", "b"]),
        ("matrix.axes.batch", [8, 16]),
        ("matrix.axes", {"batch": [8], "training.settings.steps": [5]}),
        ("matrix.workload.pod.image", "b:2"),
        ("names.argument", "$(touch pwned)"),
        ("names.label", "{{ 7 * 7 }}"),
    ],
)
def test_a_listed_field_is_changed(tmp_path: Path, path: str, value: Any) -> None:
    assert changed(tmp_path, {path: value}).written(path) == value


def test_a_field_that_a_preset_assigned_can_be_changed(tmp_path: Path) -> None:
    assert changed(tmp_path, {"training.settings.steps": 7}, "small").get("training.settings.steps") == 7


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("training.corpus.size", 3, "training.corpus.size"),
        ("training", {"settings": {}, "corpus": {"any": 1, "size": 3}}, "training.corpus.size"),
        ("training.corpus", None, "training.corpus.size"),
        ("hosts[1]", "c", r"hosts\[1\]|hosts.1"),
        ("hosts[-1]", "c", "hosts.1"),
        ("hosts", ["a", "b", "c"], "hosts"),
        ("training.corpus.size", 2, "training.corpus.size"),
        ("matrix.axes", {"batch": [1, 2], "training.corpus.size": [9]}, "training.corpus.size"),
    ],
)
def test_an_unlisted_field_is_refused_with_a_hint_for_maintainers(
    tmp_path: Path, path: str, value: Any, named: str
) -> None:
    with pytest.raises(UsageError, match=f"a comment may not change `({named})`.*ci: .overridable: ") as caught:
        changed(tmp_path, {path: value})
    assert "p.yaml" in str(caught.value)


CRANE = """
from typing import ClassVar
from pydantic import BaseModel
from toolbox.targets.backends import local

class Fields(BaseModel):
    hook: dict[str, int] = {}

class Target(local.Target):
    workload_fields: ClassVar[type[BaseModel]] = Fields
"""


@pytest.mark.parametrize(
    ("guarded", "refused"),
    [
        ("", {"hook.height", "hook.program"}),
        ("    guarded_fields: ClassVar[tuple[str, ...]] = ('hook.program',)\n", {"hook.program"}),
    ],
    ids=["not declared", "declared"],
)
def test_a_backend_guards_the_fields_that_it_adds(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarded: str, refused: set[str]
) -> None:
    monkeypatch.setenv("TOPGALLANT_WORKSPACE", str(workspace.directory))
    workspace.write({"backends/crane.py": CRANE + guarded})
    config = CONFIG.replace("    extra:", "    hook: {height: 1, program: 2}\n    extra:")
    for field in ("hook.height", "hook.program"):
        with pytest.raises(UsageError, match="may never") if field in refused else contextlib.nullcontext():
            changed(tmp_path, {f"matrix.workload.{field}": 3}, config=config)


def test_a_replaced_list_is_named_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        changed(tmp_path, {"matrix.workload.command": ["sh", "-c", "id", "all"]})
    assert str(caught.value) == "/var: a comment may never change `matrix.workload.command`"


NEVER = [
    ("matrix.workload.command", ["sh", "-c", "id"]),
    ("matrix.workload.command", "id"),
    ("matrix.workload.command[1]", "id"),
    ("matrix.workload", {"command": "id"}),
    ("matrix.workload.write", {"a.txt": "id"}),
    ("matrix", {"axes": {"a": [1]}, "workload": {"command": "id"}}),
    ("matrix", None),
    ("matrix.workload.env", {"LD_PRELOAD": "x"}),
    ("matrix.workload.env.A", "2"),
    ("matrix.workload.files", {"x": "/etc/shadow"}),
    ("matrix['workload'].files.x", "/etc/shadow"),
    ("matrix.axes", {"matrix.workload.command": [["id"]]}),
    ("matrix.axes", {'matrix["workload"].env.A': ["2"]}),
    ("matrix.include", [{"batch": 1, "targets.here.backend": "ssh"}]),
    ("matrix.max_cost", 5000),
    ("matrix.max_cells", 5000),
    ("matrix.max_cells", None),
    ("matrix.axes", {"matrix.max_cells": [5000]}),
    ("secrets.token", "other-file"),
    ("secrets", {"dir": {"env_key": "HOME"}}),
    ("targets.here.backend", "ssh"),
    ("clusters", {"x": {"create": {"command": "id", "destroy": "id"}}}),
    ("results.record", False),
    ("results", {"database": "postgresql://evil/x"}),
    ("ci.overridable", ["**"]),
    ("ci", {"overridable": ["**"]}),
    ("ci_presets.small", {"matrix.workload.command": "id"}),
    ("ci_presets", {"to_apply": ["small"]}),
]


@pytest.mark.parametrize(("path", "value"), NEVER, ids=str)
@pytest.mark.parametrize("listed", ["**", "*", "matrix", "matrix.workload.**"])
def test_commands_targets_and_secrets_are_never_overridable(tmp_path: Path, path: str, value: Any, listed: str) -> None:
    config = CONFIG.replace("overridable: [", f'overridable: ["{listed}", ')
    with pytest.raises(UsageError, match="a comment may never change `"):
        changed(tmp_path, {path: value}, config=config)


@pytest.mark.parametrize(
    ("path", "value", "reached"),
    [
        ("names.secret", "other-file", "password"),
        ("names.host", "two", "targets"),
        ("names.program", "bash", "matrix.workload.command"),
    ],
)
def test_guarded_fields_that_refer_to_a_listed_field_stay_guarded(
    tmp_path: Path, path: str, value: Any, reached: str
) -> None:
    with pytest.raises(UsageError, match=f"a comment may never change `{reached}`, which refers to"):
        changed(tmp_path, {path: value})


def test_a_guarded_field_that_selects_a_value_by_the_cell_guards_all_values(tmp_path: Path) -> None:
    config = CONFIG.replace('command: ["@names.program"', 'command: ["@names.{@cell.batch}"')
    with pytest.raises(UsageError, match=r"a comment may never change `matrix\.workload\.command`, which refers to"):
        changed(tmp_path, {"names.label": "other"}, config=config)


def test_the_program_of_a_shell_command_is_its_first_word(tmp_path: Path) -> None:
    config = CONFIG.replace(
        'command: ["@names.program", "{@names.argument}"]', 'command: "{@names.program} {@names.argument}"'
    )
    changed(tmp_path, {"names.argument": "y"}, config=config)
    with pytest.raises(UsageError, match="may never change"):
        changed(tmp_path, {"names.program": "bash"}, config=config)


AXES = "axes: {batch: [1, 2], tool: [a, b], training.settings.steps: [10, 20], names.argument: [x]}"


@pytest.mark.parametrize(
    ("guarded", "path", "value"),
    [
        ('command: ["@cell.tool"]', "matrix.axes.tool", ["/tmp/evil"]),
        ('command: ["bin/{@cell.tool}", x]', "matrix.axes.tool[0]", "../evil"),
        ('command: ["@names.{@cell.tool}"]', "matrix.axes.tool", ["label"]),
        ('command: ["@cell.tool"]', "matrix.include", [{"tool": "/tmp/evil"}]),
        ('command: ["@names.argument"]', "matrix.axes['names.argument']", ["/tmp/evil"]),
        ('command: ["@names.argument"]', "matrix.include", [{"names.argument": "/tmp/evil"}]),
        ('files: {a: "@cell.tool"}', "matrix.axes.tool", ["/etc/passwd"]),
        ('cwd: "@cell.tool"', "matrix.axes", {"batch": [1, 2], "tool": ["/"], "training.settings.steps": [10, 20]}),
        ('files: {a: "@cell"}', "matrix.axes.batch", [3]),
    ],
)
def test_an_axis_on_which_a_guarded_field_depends_is_guarded(
    tmp_path: Path, guarded: str, path: str, value: Any
) -> None:
    field = guarded.partition(":")[0]
    kept = [line for line in CONFIG.splitlines() if not line.strip().startswith((f"{field}:", "axes:"))]
    kept[kept.index("  max_cost: 5")] = f"  {AXES}"
    kept[kept.index("    extra: *shared")] = f"    {guarded}"
    with pytest.raises(UsageError, match=rf"a comment may never change `matrix\.workload\.{field}`, which refers"):
        changed(tmp_path, {path: value}, config="\n".join(kept))


def test_an_axis_may_change_the_arguments_of_a_command(tmp_path: Path) -> None:
    config = CONFIG.replace('"{@names.argument}"]', '"{@cell.batch}"]').replace('A: "1"', 'A: "@cell.batch"')
    changed(tmp_path, {"matrix.axes.batch": [3]}, config=config)


def test_the_axis_of_targets_needs_the_right_to_choose_a_target(tmp_path: Path) -> None:
    config = CONFIG.replace('"matrix.**"', '"matrix.axes.*"')
    axes = {"batch": [1], "training.settings.steps": [5], "target": ["x"]}
    with pytest.raises(UsageError, match=r"may not change `matrix\.target`"):
        changed(tmp_path, {"matrix.axes": axes}, config=config)


@pytest.mark.parametrize(
    ("command", "is_program"),
    [
        ("A=1 {@names.argument} x", True),
        ("cd d && {@names.argument}", True),
        ("'my {@names.argument}' x", True),
        ("sudo -n {@names.argument}", True),
        ("out=$({@names.argument})", True),
        ("if {@names.argument}; then x; fi", True),
        ("train --steps {@names.argument} | tee log", False),
        ("A={@names.argument} train", False),
    ],
)
def test_a_reference_that_may_name_a_program_in_a_shell_command_is_guarded(
    tmp_path: Path, command: str, *, is_program: bool
) -> None:
    config = CONFIG.replace('command: ["@names.program", "{@names.argument}"]', f'command: "{command}"')
    with pytest.raises(UsageError, match="may never change") if is_program else contextlib.nullcontext():
        changed(tmp_path, {"names.argument": "evil"}, config=config)


def test_a_program_whose_path_has_a_blank_is_guarded_as_a_whole(tmp_path: Path) -> None:
    config = CONFIG.replace("argument: x", "argument: /my tools/run").replace(
        'command: ["@names.program", "{@names.argument}"]', 'command: "{@names.argument} x"'
    )
    with pytest.raises(UsageError, match="may never change"):
        changed(tmp_path, {"names.argument": "/my evil"}, config=config)


@pytest.mark.parametrize("field", ["env", "write"])
def test_a_comment_changes_values_but_not_names_in_a_referenced_mapping(tmp_path: Path, field: str) -> None:
    names = "names: {host: one, program: p, argument: x, label: l, map: {A: b}, secret: s}"
    kept = [line for line in CONFIG.splitlines() if not line.strip().startswith((f"{field}:", "names:"))]
    kept.insert(kept.index("clusters: {}"), names)
    kept[kept.index("    extra: *shared")] = f'    {field}: "@names.map"'
    config = "\n".join(kept)
    changed(tmp_path, {"names.map.A": "other"}, config=config)
    with pytest.raises(UsageError, match=rf"never change `matrix\.workload\.{field}`"):
        changed(tmp_path, {"names.map": {"BASH_ENV": "/tmp/evil"}}, config=config)


def test_the_field_of_the_pinned_revision_is_guarded(tmp_path: Path) -> None:
    workflow = "workflows: {c: {comment: true, revision: names.label}}"
    config = CONFIG.replace('"ci.**"]', f'"ci.**"]\n  {workflow}')
    with pytest.raises(UsageError, match=r"may never change `names\.label`"):
        changed(tmp_path, {"names.label": "refs/pull/99/head"}, config=config)


def test_keys_of_the_same_text_do_not_hide_a_change(tmp_path: Path) -> None:
    config = CONFIG + "lookup: {1: fine}\n"
    with pytest.raises(UsageError, match=r"may not change `lookup"):
        changed(tmp_path, {"lookup": {1: "evil", "1": "fine"}}, config=config)
    with pytest.raises(ValueError, match="two keys of the same text"):
        comment_limits.check_value({"a": {1: "evil", "1": "fine"}})


def test_an_unlisted_field_cannot_be_changed_through_an_anchor(tmp_path: Path) -> None:
    config = CONFIG + "other: *shared\n"
    with pytest.raises(UsageError, match=r"may not change `other\.run`"):
        changed(tmp_path, {"shared.run": "id"}, config=config)


def test_a_guarded_mapping_cannot_be_changed_through_an_anchor(tmp_path: Path) -> None:
    config = CONFIG.replace('    env: {A: "1"}\n', "    env: *shared\n")
    with pytest.raises(UsageError, match=r"may never change `matrix\.workload\.env\.run`"):
        changed(tmp_path, {"shared.run": "id"}, config=config)


@pytest.mark.parametrize("config", ["a: 1", "a: 1\nci: {}", "a: 1\nci: {overridable: []}"])
def test_nothing_is_listed_by_default(tmp_path: Path, config: str) -> None:
    with pytest.raises(UsageError, match="may not change `a`"):
        changed(tmp_path, {"a": 2}, config=config)


def test_at_most_three_faults_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        changed(tmp_path, dict.fromkeys(["hosts", "password", "targets", "results", "secrets"]))
    assert len(str(caught.value).splitlines()) == 4
    assert str(caught.value).endswith("more")


@pytest.mark.parametrize("listed", ["5", "[5]", "[a..b]", "[$]", "{a: b}"])
def test_overridable_must_be_a_list(tmp_path: Path, listed: str) -> None:
    config = f"a: 1\nci: {{overridable: {listed}}}"
    with pytest.raises(ConfigurationError, match=r"p\.yaml:2: `ci\.overridable"):
        changed(tmp_path, {"a": 2}, config=config)
    with pytest.raises(ConfigurationError, match=r"p\.yaml:2: `ci\.overridable"):
        Configuration.load(Request(tmp_path / "p.yaml")).check()


def test_a_ci_block_of_the_project_is_valid(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("ci: {overridable: [a.*], nightly: true}")
    Configuration.load(Request(tmp_path / "p.yaml")).check()
    assert ("ci",) in contract.files(contract.LIBRARY)


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("@secrets.token", "reference"),
        ("*$@secrets.token", "reference"),
        ("a {@secrets.token} b", "reference"),
        ({"a": [{"b": "{@x}"}]}, "reference"),
        ({"@a": 1}, "reference"),
        ("x" * 10_001, "characters"),
        (["x" * 5001] * 2, "characters"),
        ([1] * 1001, "parts"),
        ([[[[[[[[[1]]]]]]]]], "levels"),
        (b"x", "bytes"),
        ([2**63], "integer beyond"),
        ({-(2**63): 1}, "integer beyond"),
        ({1, 2}, "set"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_values_that_are_large_or_contain_references_are_refused(value: Any, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        comment_limits.check_value(value)


@pytest.mark.parametrize(
    "value", [None, 1, 0.5, True, "text", "x" * 10_000, [1] * 999, {"a": {"b": [None]}}, "a@b", "{{ x }}"]
)
def test_plain_values_are_accepted(value: Any) -> None:
    comment_limits.check_value(value)


def test_a_job_may_set_a_field_that_a_comment_may_not(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(textwrap.dedent(CONFIG))
    trusted = {"matrix.max_cost": 9, "hosts[0]": "job"}
    request = Request(tmp_path / "p.yaml", overrides={"hosts[0]": "c"}, is_from_outside=True, trusted_overrides=trusted)
    configuration = Configuration.load(request)
    assert (configuration.written("matrix.max_cost"), configuration.written("hosts")) == (9, ["c", "b"])


def test_a_fault_names_the_path_in_the_comment(tmp_path: Path) -> None:
    with pytest.raises(comment_limits.ForbiddenOverrides) as caught:
        changed(tmp_path, {"training.corpus": {"any": 1, "size": 9}, "hosts[0]": "c", "matrix.max_cost": 1})
    assert list(caught.value.faults.values()) == ["training.corpus", "matrix.max_cost"]


@pytest.mark.parametrize("text", ["a\0", "\ud800"])
def test_a_text_that_no_file_can_contain_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="contains a NUL character or a half of a surrogate pair"):
        comment_limits.check_value({"a": [text]})
