"""The value of a reference in shell text is one word, whatever the value is and wherever the reference is."""

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.config.conftest import Load
from toolbox.config import shell_text
from toolbox.ground.model.errors import ConfigurationError
from toolbox.ground.model.secrets import Secret

HOSTILE = [
    "$(touch pwned)",
    "`touch pwned`",
    "; touch pwned;",
    "'; touch pwned; '",
    '"; touch pwned; "',
    "\\'; touch pwned; '",
    "\ntouch pwned\n",
    "a  b\t*",
    "-n",
    "${HOME} ~ !! {a,b}",
    "",
    "é ☃",
]
# Each of these shell texts prints the value between angle brackets.
TEXTS = [
    "printf '<%s>' {@x}",
    "printf '<%s>' '{@x}'",
    "printf '<%s>' \"{@x}\"",
    'printf "<%s>" "$(printf %s {@x}; printf %s END)"',
    'printf "<%s>" "$(printf %s "{@x}"; printf %s "END")"',
    "printf '<%s>' \\\n  {@x}",
    "true # it's a comment\nprintf '<%s>' {@x}",
    "echo \\\\ \\\" ${HOME} $((1 + 2)) `true` $'it\\'s' $# >&2; printf '<%s>' \"{@x}\"",
    "(( 3 > 2 )) && (printf '<%s>' {@x})",
    "case a in b) ;; a) printf '<%s>' {@x} ;; esac",
    "cat <<<'here' >&2; printf '<%s>' {@x}",
    "f() { local v={@x}; printf '<%s>' \"$v\"; }; f",
    "printf '<%s>' a#{@x} | sed 's/<a#/</'",
]


def printed(text: str, directory: Path) -> str:
    done = subprocess.run(["bash", "-c", text], cwd=directory, capture_output=True, check=True)
    return done.stdout.decode().replace("END", "")


@pytest.mark.parametrize("text", TEXTS)
def test_a_value_is_one_word_in_every_quoting(text: str, tmp_path: Path) -> None:
    for value in HOSTILE:
        if "END" in text:
            assert printed(shell_text.fill(text, {"x": value}), tmp_path) == f"<{value}>"
        else:
            assert printed(shell_text.fill(text, {"x": value}), tmp_path).removesuffix("\n") == f"<{value}>".rstrip(
                "\n"
            )
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("text", "value", "filled"),
    [
        ("train --batch={@x}", 8, "train --batch=8"),
        ('train "--batch={@x}"', 8, 'train "--batch=8"'),
        ("train {@x}", True, "train true"),
        ("train {@x}", None, "train null"),
        ("train {@x}", ["a b", 1], "train 'a b' '1'"),
        ('train "{@x}!"', ["a b", 1], "train \"\"'a b' '1'\"!\""),
        ("train {@x} end", [], "train  end"),
        ("train {@x}", {"k": 1}, "train '{\"k\": 1}'"),
        ("echo {@x}>file", 2, "echo '2'>file"),
        ("echo $HOME{@x}", "x", "echo $HOME'x'"),
        ("{@x} command", "A=1", "'A=1' command"),
    ],
)
def test_values_are_quoted_only_if_necessary(text: str, value: Any, filled: str) -> None:
    assert shell_text.fill(text, {"x": value}) == filled


@pytest.mark.parametrize(
    "text",
    [
        "cat <<EOF\n{@x}\nEOF",
        "cat <<'EOF'\ntext\nEOF\necho {@x}",
        "true # {@x}",
        "true # '\necho {@x} # {@x}",
        "echo `echo {@x}`",
        "echo $(({@x} + 1))",
        "((y = {@x}))",
        "echo ${y:-{@x}}",
        'echo "${y:-{@x}}"',
        "echo ${y:-'}'} {@x}",
        "echo $'{@x}'",
        "echo ${@x}",
        "echo \\{@x}",
        'echo "\\{@x}"',
        'echo "$(case a in a) echo "{@x}" ;; esac)"',
        "echo $[{@x}]",
        "cat <\\\n<EOF\n{@x}\nEOF",
    ],
)
def test_a_reference_is_refused_if_quoting_is_impossible(text: str) -> None:
    with pytest.raises(shell_text.ShellTextError, match=r"cannot be quoted.*set a variable in `env`"):
        shell_text.fill(text, {"x": "a"})


PIECES = st.sampled_from(
    ["{@x}", "'", '"', "$", "\\", "`", "(", ")", "$(", "${", "}", "((", "))", "#", " ", "\n", "<<EOF\n"]
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(PIECES, max_size=8).map("".join), st.sampled_from(HOSTILE[:7]))
def test_no_value_is_executed_in_any_text(tmp_path_factory: pytest.TempPathFactory, text: str, value: str) -> None:
    try:
        filled = shell_text.fill(f"echo {text}{{@x}}", {"x": value})
    except shell_text.ShellTextError:
        return
    directory = tmp_path_factory.mktemp("run")
    subprocess.run(["bash", "-c", filled], cwd=directory, capture_output=True, check=False)
    assert not (directory / "pwned").exists(), filled


# Shell text in the configuration


MATRIX = """\
matrix:
  workload:
    command: {command}
    env: {{X: "{{@cell.x}}"}}
train: {{command: "python {{@train.name}}", args: [a, "b c"], name: "my model", words: "@train.args"}}
cells: "@cell.x"
"""


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("'run {@cell.x}'", "run '$(a) b'"),
        ("'run {@train.name} {@train.args}'", "run 'my model' 'a' 'b c'"),
        ('"@train.command"', "python 'my model'"),
        ('"@train.words"', ["a", "b c"]),
        ("[run, 'x={@cell.x}']", ["run", "x=$(a) b"]),
        ("[run, '@cell.x']", ["run", "$(a) b"]),
    ],
)
def test_the_references_of_a_workload_command_are_words(load: Load, command: str, found: Any) -> None:
    text = MATRIX.format(command=command).replace('cells: "@cell.x"\n', "")
    assert load(text).overlaid({}, {"x": "$(a) b"}).get("matrix.workload")["command"] == found
    assert load(text).overlaid({}, {"x": "$(a) b"}).get("matrix.workload.env.X") == "$(a) b"


def test_the_commands_of_a_created_cluster_are_shell_text(load: Load) -> None:
    text = "name: a b\nclusters: {c: {create: {command: 'make {@name}', destroy: 'rm {@name}'}}}\n"
    assert load(text).get("clusters.c.create") == {"command": "make 'a b'", "destroy": "rm 'a b'"}


def test_a_text_of_a_cell_is_not_a_command(load: Load) -> None:
    seen = load("matrix: {workload: {command: '@cell.x'}}\n").overlaid({}, {"x": "touch pwned"})
    with pytest.raises(
        ConfigurationError, match=r"^config\.yaml:1: `matrix\.workload\.command`: @cell\.x is a value of an axis"
    ):
        seen.get("matrix.workload")


def test_a_list_of_a_cell_is_a_command(load: Load) -> None:
    seen = load("matrix: {workload: {command: '@cell.x'}}\n").overlaid({}, {"x": ["echo", "$(a)"]})
    assert seen.get("matrix.workload.command") == ["echo", "$(a)"]


def test_unquotable_references_are_reported_before_the_cells(load: Load) -> None:
    configuration = load("matrix:\n  workload:\n    command: 'echo `{@cell.x}`'\n")
    with pytest.raises(
        ConfigurationError, match=r"^config\.yaml:3: `matrix\.workload\.command`: the value of \{@cell\.x\} cannot"
    ):
        configuration.check()


def test_a_secret_in_shell_text_stays_a_secret(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_SECRETS", str(tmp_path))
    (tmp_path / "token").write_text("a b")
    text = (
        "secrets: {dir: {env_key: OUR_SECRETS}, f: token}\nt: '*$@secrets.f'\nmatrix: {workload: {command: 'x {@t}'}}"
    )
    secret = load(text).get("matrix.workload.command")
    assert isinstance(secret, Secret)
    assert shlex.split(secret.reveal()) == ["x", "a b"]
