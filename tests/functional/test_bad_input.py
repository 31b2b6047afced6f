"""Bad input leads to exit code 2 and one message on stderr with a remedy, and nothing is started."""

from __future__ import annotations

import pytest

from tests.functional.grid import grid as grid  # noqa: PLC0414  # re-exports the fixture
from toolbox.testing import Outcome, Workspace

RUN = ("project", "run", "small")
SHOW = ("config", "show", "--config_file=bad.yaml")
ARGS = ("from_config", "host", "capture_state", "--config_file=config/small.yaml", "--command_args_file=bad.j2")


def refuse(workspace: Workspace, *argv: str, env: dict[str, str] | None = None) -> Outcome:
    """Run a command line, check that it is refused, and return its outcome."""
    outcome = workspace.run(*argv, env=env)
    assert (outcome.exit_code, outcome.stdout) == (2, ""), str(outcome)
    assert outcome.stderr.startswith("error: ")
    assert "Traceback" not in outcome.stderr
    assert not list(workspace.artifacts.glob("*/*")), "a run or a step was begun"
    return outcome


CONFIGURATIONS = {
    "unknown preset": (
        "ci_presets:\n  nightly: {x: 2}\nx: 1\n",
        ["--presets=nightl"],
        ["unknown preset `nightl`", "did you mean nightly?"],
    ),
    "reference loop": (
        'a: "@b"\nb: "x {@c}"\nc: "@a"\n',
        [],
        ["bad.yaml:", "the references form a loop: @b -> x {@c} -> @a -> @b"],
    ),
    "a document that is a list": ("- a\n- b\n", [], ["bad.yaml: the document must be a mapping, not a list"]),
    "a Python object": ("a: !!python/object/apply:os.system ['touch pwned']\n", [], ["bad.yaml:1", "broken YAML"]),
    "an override of the document": ("a: 1\n", ["--overrides={$: 2}"], ["--overrides", "whole document"]),
    "overrides that are not YAML": ("a: 1\n", ["--overrides={a: ["], ["--overrides", "broken YAML"]),
    "a missing override file": ("a: 1\n", ["--overrides=nope.yaml"], ["override file nope.yaml does not exist"]),
    "an invalid path": ("a: 1\n", ["--path=a..b"], ["'a..b' is not a path"]),
    "an unknown path": ("alpha: 1\n", ["--path=alph"], ["no field `alph`", "did you mean alpha?"]),
    "a path past the end of a list": ("a: [1]\n", ["--path=a[1]"], ["`a` is a list of 1 items"]),
    "a secret in no directory": (
        "secrets: {dir: {env_key: NO_SUCH_VARIABLE}, token: t}\na: '*$@secrets.token'\n",
        ["--presets=nope"],
        ["unknown preset `nope`"],
    ),
    "a preset loop": (
        "ci_presets:\n  a: {extends: [b]}\n  b: {extends: [a]}\nx: 1\n",
        ["--presets=a"],
        ["bad.yaml:3: the presets form a loop: a -> b -> a"],
    ),
    "a preset with an unknown field": (
        "ci_presets:\n  a:\n    tests.gpus: 2\ntests: {gpu: 1}\n",
        ["--presets=a"],
        ["bad.yaml:3", "preset a cannot create a field", "tests.gpus", "did you mean gpu?"],
    ),
    "presets to apply that are not names": (
        "ci_presets:\n  to_apply: {a: 1}\n",
        [],
        ["bad.yaml:2", "`ci_presets.to_apply`", "list of names"],
    ),
    "a dangling reference": (
        "gpu: {count: 1}\nuse: '@gpu.coun'\n",
        [],
        ["bad.yaml:2: `use`: dangling reference '@gpu.coun'", "did you mean count?"],
    ),
    "an empty document": ("", [], ["bad.yaml: the document must be a mapping, not empty"]),
    "two documents": ("a: 1\n---\nb: 2\n", [], ["bad.yaml:2", "broken YAML"]),
    "an override of nothing": ("a: 1\n", ["--overrides={b.c: 2}"], ["--overrides", "no field `b.c`"]),
    "a wrong item of a library block": (
        "secrets:\n  env:\n    - A\n    - [B]\n",
        [],
        ["bad.yaml:4: `secrets.env[1]` must be a valid string, not ['B']"],
    ),
    "a bad library block": (
        "secrets: {dir: 7, env: 5}\n",
        [],
        ["2 faults in the configuration", "`secrets.dir` must be ", "`secrets.env` must be a valid list, not 5"],
    ),
}


@pytest.mark.parametrize(("text", "flags", "expected"), CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_a_bad_configuration_is_refused(workspace: Workspace, text: str, flags: list[str], expected: list[str]) -> None:
    outcome = refuse(workspace.write({"bad.yaml": text}), *SHOW, *flags)
    for part in expected:
        assert part in outcome.stderr
    assert len(outcome.stderr.splitlines()) <= 5


@pytest.mark.parametrize("content", [b"a: \xff\xfe", b"\x00\x01", b"a: \x1b[31m"], ids=["latin", "nul", "escape"])
def test_a_file_that_is_not_text_is_refused(workspace: Workspace, content: bytes) -> None:
    (workspace.directory / "bad.yaml").write_bytes(content)
    assert "bad.yaml" in refuse(workspace, *SHOW).stderr


@pytest.mark.parametrize("name", ["missing.yaml", "projects", "/dev/null/x"])
def test_an_unreadable_configuration_file_is_named(workspace: Workspace, name: str) -> None:
    assert name in refuse(workspace, "config", "show", f"--config_file={name}").stderr


TEMPLATES = {
    "undefined name": ("host capture_state:\n  packages: {{ greting }}\n", ["bad.j2:2", "did you mean greeting?"]),
    "missing key": (
        "host capture_stat:\n  packages: null\nother thing:\n",
        ["bad.j2 has no key `host capture_state`", "\n  host capture_stat\n  other thing\n"],
    ),
    "broken Jinja": ("host capture_state:\n  packages: {{ greeting\n", ["bad.j2:"]),
    "broken YAML": ("host capture_state:\n  packages: [a\n", ["bad.j2", "not YAML"]),
    "an expression that fails": ("host capture_state:\n  packages: {{ 1 / 0 }}\n", ["bad.j2:2", "ZeroDivisionError"]),
    "a message of the template": (
        "host capture_state:\n  packages: {{ 'no GPU here' | raise_exception }}\n",
        ["bad.j2:2", "no GPU here"],
    ),
    "an escape from the sandbox of a path": (
        "host capture_state:\n  packages: '@commands.tests'\n",
        ["dangling reference '@commands.tests'"],
    ),
    "an argument that is still to be set": (
        "host capture_state:\n  packages: [SET_AT_RUNTIME]\n",
        ["--packages is SET_AT_RUNTIME", "--extra"],
    ),
    "unknown arguments": (
        "host capture_state:\n  package: a\n  accelerator: true\n",
        ["unknown argument --package: did you mean --packages?", "--accelerator"],
    ),
    "arguments of the wrong type": (
        "host capture_state:\n  packages: {a: 1}\n  accelerators: maybe\n",
        ["--packages must be a list or null, not {'a': 1}", "--accelerators must be true or false, not 'maybe'"],
    ),
}


@pytest.mark.parametrize(("text", "expected"), TEMPLATES.values(), ids=TEMPLATES)
def test_a_bad_template_is_refused(small: Workspace, text: str, expected: list[str]) -> None:
    outcome = refuse(small.write({"bad.j2": text}), *ARGS)
    for part in expected:
        assert part in outcome.stderr


COMMAND_LINES = {
    "unknown group": (["hots"], "unknown group `hots`: did you mean host?"),
    "unknown command": (["host", "capture"], "unknown command `host capture`: did you mean capture_state?"),
    "unknown flag": (["host", "capture_state", "--package=a"], "--package: did you mean --packages?"),
    "flag of the wrong type": (
        ["host", "capture_state", "--accelerators=7"],
        "--accelerators must be true or false, not '7'",
    ),
    "missing argument": (["training", "cleanup"], "--directory is missing (a path)"),
    "invalid number": (["training", "prepare_corpus", "d", "1.5"], "--characters must be a whole number, not '1.5'"),
    "argument too many": (["host", "capture_state", "true", "a", "b", "c"], "unexpected argument 'b'"),
    "argument given twice": (["project", "run", "small", "--name=small"], "--name is given twice"),
    "flag before the group": (["--presets=a"], "the group is missing before --presets=a"),
    "lone dash": (["project", "run", "-"], "unexpected argument"),
    "separator of Fire": (["project", "list", "--", "--interactive"], "unexpected argument"),
    "host that is an option": (["host", "capture_state", "--hosts=-oProxyCommand=touch pwned"], "is not a host"),
    "hosts with one name": (
        ["host", "capture_state", "--hosts=a@tpu,b@tpu"],
        "tpu is named twice, with different users",
    ),
    "unknown project": (["project", "run", "smal"], "unknown project `smal`: did you mean small?"),
    "project that is a path": (["project", "run", "../small"], "unknown project `../small`"),
    "unknown preset": (["project", "run", "small", "--presets=lod"], "did you mean loud?"),
    "unknown phase": (["project", "run", "small", "--phases=tests"], "unknown phase `tests`: did you mean test?"),
    "deadline that is not a number": (
        ["project", "run", "small", "--deadline=nan"],
        "--deadline must be a finite number, not 'nan'",
    ),
    "deadline without an end": (["project", "run", "small", "--deadline=inf"], "--deadline must be a finite number"),
    "deadline beyond every timer": (["project", "run", "small", "--deadline=1e300"], "of at most 315360000"),
    "deadline of no time": (["project", "run", "small", "--deadline=0"], "--deadline must be a number above 0"),
    "negative number of jobs": (["project", "resume", "x", "--jobs=-1"], "--jobs must be a number above 0, not -1"),
    "no failures at all": (["project", "run", "small", "--max_failures=0"], "--max_failures must be a number above 0"),
    "shard of very many": (["project", "plan", "small", f"--shard=1/{'9' * 5000}"], "is not a shard"),
    "unknown format": (["project", "list", "--format=xml"], "--format must be one of text, json"),
    "no jobs at all": (["project", "run", "small", "--jobs=0"], "--jobs must be a number above 0"),
    "jobs in words": (["project", "run", "small", "--jobs=many"], "--jobs must be "),
    "resume of a missing directory": (["project", "resume", "nowhere"], "`nowhere` is not a directory"),
    "resume of a directory without a run": (["project", "resume", "."], "is not the directory of a run"),
    "status of a directory without a run": (["project", "status", "config"], "config is not the directory of a run"),
    "config of nothing": (["config", "show"], "or a file with --config_file"),
    "template of nothing": (["from_config", "host", "capture_state"], "--project"),
    "unknown argument to show": (
        ["from_config", "nowhere", "do_it", "--project=small", "--show_args=tags"],
        "`nowhere do_it` has no argument `tags`: did you mean tag?",
    ),
    "command that this checkout does not have": (
        ["from_config", "nowhere", "do_it", "--project=small"],
        "unknown group `nowhere`",
    ),
    "argument left to the caller": (
        ["from_config", "host", "capture_state", "--project=small", "--prefix=left"],
        "left/host capture_state: --packages is SET_AT_RUNTIME",
    ),
    "extra that is not a mapping": (
        ["from_config", "host", "capture_state", "--project=small", "--extra=[1]"],
        "--extra must be ",
    ),
}


@pytest.mark.parametrize(("argv", "expected"), COMMAND_LINES.values(), ids=COMMAND_LINES)
def test_a_bad_command_line_is_refused(small: Workspace, argv: list[str], expected: str) -> None:
    outcome = refuse(small, *argv)
    assert expected in outcome.stderr
    assert len(outcome.stderr.splitlines()) <= 5


def test_all_wrong_arguments_are_named_at_once(small: Workspace) -> None:
    outcome = refuse(small, "training", "prepare_corpus", "--characters=x", "--carachters=3")
    for part in (
        "--directory is missing",
        "--characters must be a whole number, not 'x'",
        "unknown argument --carachters",
    ):
        assert part in outcome.stderr


def test_a_role_whose_program_is_missing_on_this_machine_ends_with_2(small: Workspace) -> None:
    outcome = small.run("training", "prepare_corpus", "corpus", "--python=no-such-python")
    assert outcome.exit_code == 2, str(outcome)
    assert "there is no program `no-such-python`: install it, or add its folder to $PATH" in str(outcome)


def test_all_faults_of_a_contract_are_named_at_once(workspace: Workspace) -> None:
    overrides = "{training.directory: 5, training.settings.steps: many, training.corpus: {characters: 9, x: 1}}"
    outcome = refuse(workspace, "project", "run", "training_e2e", f"--overrides={overrides}")
    for part in (
        "faults in the configuration",
        "`training.directory` must be ",
        "`training.settings.steps` must be a valid integer, not 'many'",
        "`training.corpus.characters` must be ",
        "`training.corpus.x` is an unknown field",
    ):
        assert part in outcome.stderr


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, "the environment variable THE_SECRETS must name the directory of the secrets"),
        ({"THE_SECRETS": "nowhere"}, "(THE_SECRETS) does not exist"),
    ],
)
def test_a_missing_secret_file_is_reported_before_the_run(small: Workspace, env: dict[str, str], expected: str) -> None:
    secrets = "\nsecrets: {dir: {env_key: THE_SECRETS}, token: token.txt}\ntoken: '*$@secrets.token'\n"
    config = small.directory / "config/small.yaml"
    config.write_text(config.read_text() + secrets)
    outcome = refuse(small, *RUN, env=env)
    assert "`token`: secret '*$@secrets.token': " in outcome.stderr
    assert expected in outcome.stderr


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname"])
def test_a_secret_file_outside_of_its_directory_is_refused(small: Workspace, name: str) -> None:
    small.write({"held/inside": "x", "outside": "y"})
    config = small.directory / "config/small.yaml"
    config.write_text(f"{config.read_text()}\nsecrets: {{dir: {{env_key: D}}, t: '{name}'}}\nt: '*$@secrets.t'\n")
    assert "is outside of the directory" in refuse(small, *RUN, env={"D": "held"}).stderr


def test_a_command_whose_role_does_not_exist_is_refused(small: Workspace) -> None:
    small.write(
        {
            "commands/machine.py": '''
                """Machines."""
                from toolbox.api import role

                class Machine:
                    """Machines."""

                    @role
                    def polish(self) -> None:
                        """Polish it."""
            ''',
            "roles/machine_polsih/tasks/main.yml": "[]\n",
        }
    )
    outcome = refuse(small, "machine", "polish")
    assert "there is no role roles/machine_polish/tasks/main.yml: did you mean machine_polsih?" in outcome.stderr


def test_a_broken_group_is_reported_and_other_groups_work(small: Workspace) -> None:
    small.write({"commands/shaky.py": '"""Shaky."""\nimport no_such_module\n', "commands/torn.py": "def ("})
    outcome = refuse(small, "shaky", "do_it")
    assert "the group `shaky` is broken" in outcome.stderr
    assert "No module named 'no_such_module'" in outcome.stderr
    assert "torn" in small.run().stdout
    assert "BROKEN" in small.run().stdout
    assert small.run("project", "list").exit_code == 0


def test_an_orchestration_that_cannot_be_imported_is_named(small: Workspace) -> None:
    small.write({"projects/small/orchestration.py": '"""Broken."""\nimport no_such_module\n'})
    outcome = refuse(small, *RUN)
    assert "projects/small/orchestration.py:2: ModuleNotFoundError" in outcome.stderr


def test_with_debug_the_traceback_is_shown(small: Workspace) -> None:
    outcome = small.run("--debug", "project", "run", "smal")
    assert outcome.exit_code == 2
    assert "Traceback" in outcome.stderr


def test_hostile_text_in_a_message_stays_text(workspace: Workspace) -> None:
    refuse(workspace, "project", "run", '"; touch pwned; $(touch pwned2) `touch pwned3` \'"')
    assert not list(workspace.directory.rglob("pwned*"))


@pytest.mark.parametrize(
    "argv",
    [
        ["project", "run", "small", "--presets=loud", "--presets=failing"],
        ["project", "run", "small", "--presets", "loud", "--presets", "failing"],
        ["host", "capture_state", "--accelerators", "--noaccelerators"],
    ],
    ids=" ".join,
)
def test_a_flag_that_is_given_twice_is_refused(small: Workspace, argv: list[str]) -> None:
    assert "is given twice" in refuse(small, *argv).stderr


ORCHESTRATIONS = {
    "leaves": ("import sys\nsys.exit(0)\n", ["projects/small/orchestration.py:2: SystemExit: 0"]),
    "fails": ("VALUE = 1\nVALUE / 0\n", ["projects/small/orchestration.py:2: ZeroDivisionError"]),
    "helper": ("from projects.small import helper\n", ["projects/small/helper.py:3: KeyError: 'x'"]),
    "async": ("def prepare(): ...\nasync def test(): ...\n", ["small/orchestration.py: test is `async`"]),
}


@pytest.mark.parametrize(("source", "expected"), ORCHESTRATIONS.values(), ids=ORCHESTRATIONS)
def test_a_broken_orchestration_is_named_with_its_line(small: Workspace, source: str, expected: list[str]) -> None:
    small.write({"projects/small/orchestration.py": source, "projects/small/helper.py": "\n\n#\n#\n{}['x']\n"})
    outcome = refuse(small, *RUN)
    assert [part for part in expected if part not in outcome.stderr] == []


@pytest.mark.parametrize(("source", "fault"), [("def (", "SyntaxError"), ("x = 1\n", "no attribute 'Contract'")])
def test_a_broken_contract_of_a_project_is_named(small: Workspace, source: str, fault: str) -> None:
    small.write({"projects/small/contracts/commands.py": source})
    outcome = refuse(small, *RUN)
    assert "the contract " in outcome.stderr
    assert "projects/small/contracts/commands.py is broken" in outcome.stderr
    assert fault in outcome.stderr


def test_a_faulty_override_is_named_without_a_line_of_the_file(workspace: Workspace) -> None:
    workspace.write({"bad.yaml": "secrets:\n  env: [A]\n"})
    outcome = refuse(workspace, *SHOW, "--overrides={secrets.env: 5}")
    assert "--overrides: `secrets.env` must be a valid list, not 5" in outcome.stderr
    assert "bad.yaml:" not in outcome.stderr


def test_a_bad_block_is_named_with_its_line_by_a_command_that_reads_only_this_block(small: Workspace) -> None:
    config = (small.directory / "config/small.yaml").read_text()
    small.write({"config/small.yaml": f"{config}\nresults:\n  currency: ''\n"})
    outcome = refuse(small, "results", "list", "--project=small")
    line = f"config/small.yaml:{len(config.splitlines()) + 3}"
    assert f"{line}: `results.currency` must have at least 1 character, not ''" in outcome.stderr
