"""References are resolved: `@a.b`, `text {@a.b} text`, and the secret `*$@a.b`."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.config.conftest import Load
from toolbox.config.references import is_reference
from toolbox.ground.model.errors import ConfigurationError
from toolbox.ground.model.secrets import Secret

TEXT = """\
number: 8
text: eight
nothing: null
map: {k: v, list: [1, "@number"], "dotted.key": dotted}
whole: "@number"
to_null: "@nothing"
to_map: "@map"
through: "@whole"
inside: "{@text} is {@number}, {@through}, {@nothing}"
twice: "{@text}{@text}"
of_inside: "<{@inside}>"
list: ["@text", {deep: ["{@text}!"]}]
keyed: '@map["dotted.key"]'
item: "@map.list[1]"
on_the_way: "@to_map.k"
in_text_on_the_way: "{@to_map.list[1]}"
of_the_document: "@$.number"
key: list
odd: 'a.b"c\\'
of_odd: {'a.b"c\\': odd value, 8: of a number}
selected: "@map.{@key}"
selected_in_brackets: "@map[{@key}][1]"
selected_odd: "@of_odd.{@odd}"
selected_number: "@of_odd.{@number}"
mail: someone@example.com
braces: "{ @text } {text} @"
at_the_end: "x @number"
"""


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("whole", 8),
        ("to_null", None),
        ("to_map", {"k": "v", "list": [1, 8], "dotted.key": "dotted"}),
        ("through", 8),
        ("inside", "eight is 8, 8, null"),
        ("twice", "eighteight"),
        ("of_inside", "<eight is 8, 8, null>"),
        ("list", ["eight", {"deep": ["eight!"]}]),
        ("map.list[1]", 8),
        ("keyed", "dotted"),
        ("item", 8),
        ("on_the_way", "v"),
        ("in_text_on_the_way", "8"),
        ("of_the_document", 8),
        ("selected", [1, 8]),
        ("selected_in_brackets", 8),
        ("selected_odd", "odd value"),
        ("selected_number", "of a number"),
        ("to_map.list", [1, 8]),
        ('to_map["dotted.key"]', "dotted"),
        ("mail", "someone@example.com"),
        ("braces", "{ @text } {text} @"),
        ("at_the_end", "x @number"),
    ],
)
def test_a_reference_is_resolved(load: Load, path: str, value: Any) -> None:
    assert load(TEXT).get(path) == value


def test_the_whole_document_is_resolved(load: Load) -> None:
    document = load(TEXT).get("$")
    assert (document["through"], document["list"], document["map"]["list"]) == (
        8,
        ["eight", {"deep": ["eight!"]}],
        [1, 8],
    )


def test_inserted_values_are_not_resolved_again(load: Load) -> None:
    configuration = load('a: "{@b}"\nb: "{{@c}}"\nc: "@d"\nd: x\n')
    assert configuration.get("a") == "{x}"


@pytest.mark.parametrize(
    ("value", "is_one"),
    [
        ("@a", True),
        ("x {@a}", True),
        ("*$@a", True),
        ("*@a", True),
        ("a@b", False),
        ("{a}", False),
        (7, False),
        (None, False),
    ],
)
def test_references_are_distinguished_from_plain_text(value: object, is_one: bool) -> None:
    assert is_reference(value) is is_one


@pytest.mark.parametrize(("key", "message"), [("[1]", "must be a name"), ("none", "no field `a.none`")])
def test_a_key_that_does_not_select_a_field_is_an_error(load: Load, key: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load(f"a: {{x: 1}}\nkey: {key}\nb: '@a.{{@key}}'\n").get("b")


def test_a_key_of_a_cell_is_resolved_in_the_configuration_of_the_cell(load: Load) -> None:
    configuration = load("a: {x: 1, y: 2}\nmatrix: {b: '@a.{@cell.k}'}\n")
    assert configuration.get("matrix.b") == "@a.{@cell.k}"
    assert configuration.overlaid({}, {"k": "y"}).get("matrix.b") == 2


@pytest.mark.parametrize(
    ("text", "path", "loop"),
    [
        ("a: '@a'", "a", "@a -> @a"),
        ("a: '@b'\nb: '@a'", "a", "@b -> @a -> @b"),
        ("a: '{@b}'\nb: 'x{@a}'", "a", "{@b} -> x{@a} -> {@b}"),
        ("a: {b: '@a'}", "a", "@a -> @a"),
        ("a: ['@a']", "a", "@a -> @a"),
        ("a: '@a.b'", "a", "@a.b -> @a.b"),
        ("a: '@$'", "a", "@$ -> @$"),
        ("x: '@a'\na: '@b'\nb: '@a'", "x", "@a -> @b -> @a"),
        ("a: '@b.c'\nb: '@a.c'", "a", "@b.c -> @a.c -> @b.c"),
        ("a: '*$@b'\nb: '*$@a'", "a", "*$@b -> *$@a -> *$@b"),
    ],
)
def test_a_reference_loop_names_its_chain(load: Load, text: str, path: str, loop: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(text).get(path)
    assert str(caught.value).endswith(f"the references form a loop: {loop}")


def test_a_shared_container_is_not_a_loop(load: Load) -> None:
    assert load("a: &a {k: 1}\nb: {x: *a, y: [*a, *a]}\n").get("b") == {"x": {"k": 1}, "y": [{"k": 1}, {"k": 1}]}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("@tets", "dangling reference '@tets': no field `tets`: the document has no `tets`; did you mean test?"),
        ("x {@test.b}", "dangling reference 'x {@test.b}': no field `test.b`: `test` has no `b`; the fields are a"),
        ("@test.a.b", "dangling reference '@test.a.b': no field `test.a.b`: `test.a` is a int, which has no fields"),
        ("@list[2]", "dangling reference '@list[2]': no field `list[2]`: `list` is a list of 2 items"),
        ("@", "dangling reference '@': '' is not a path"),
        ("{@}", "dangling reference '{@}': '' is not a path"),
        ("@a..b", "dangling reference '@a..b': 'a..b' is not a path"),
        ("*$@tets", "dangling reference '*$@tets': no field `tets`"),
        ("*@test", "'*@test' is not a reference: write `@a.b`, or `*$@a.b` for a secret"),
    ],
)
def test_a_dangling_reference_is_named_with_its_location(load: Load, value: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(f"test: {{a: 1}}\nlist: [1, 2]\nm:\n  - '{value}'\n").get("m")
    assert str(caught.value).startswith(f"config.yaml:4: `m[0]`: {message}")


def test_a_fault_is_reported_for_the_reference_that_is_wrong(load: Load) -> None:
    with pytest.raises(ConfigurationError, match=r"^config\.yaml:2: `b`: dangling reference '@c'"):
        load("a: '@b'\nb: '@c'\n").get("a")


def test_faulty_references_elsewhere_do_not_matter(load: Load) -> None:
    assert load("good: 1\nbad: '@nothing'\n").get("good") == 1


def test_references_in_presets_are_not_resolved(load: Load) -> None:
    configuration = load("ci_presets: {p: {a: '@nothing', b: '*$@nothing'}}\na: 0\nb: 0\n")
    configuration.check()
    assert configuration.get("$")["ci_presets"]["p"]["a"] == "@nothing"
    assert configuration.get("ci_presets.p") == {"a": "@nothing", "b": "*$@nothing"}
    assert list(configuration.secret_values()) == []


def test_references_that_a_preset_assigns_are_resolved(load: Load) -> None:
    assert load("ci_presets: {p: {a: '@b'}}\na: 0\nb: 7\n", presets=["p"]).get("a") == 7


SECRETS = """\
secrets:
  dir: {name: ours, env_key: OUR_SECRETS}
  token_file: token
  gone_file: gone
  outside_file: ../outside
  folder_file: folder
  latin_file: latin
  linked_file: linked
  number_file: 7
  empty_file: ""
  referring_file: "@secrets.token_file"
token: "*$@secrets.token_file"
again: "@token"
text: "Bearer {@token}, twice {@token} as {@user}"
user: me
nested: {list: ["*$@secrets.token_file"]}
gone: "*$@secrets.gone_file"
outside: "*$@secrets.outside_file"
folder: "*$@secrets.folder_file"
latin: "*$@secrets.latin_file"
linked: "*$@secrets.linked_file"
number: "*$@secrets.number_file"
empty: "*$@secrets.empty_file"
referring: "*$@secrets.referring_file"
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of the secrets, which an environment variable names."""
    directory = tmp_path / "secrets"
    (directory / "folder").mkdir(parents=True)
    (directory / "token").write_text("t0ken\n")
    (directory / "latin").write_bytes(b"caf\xe9")
    (tmp_path / "outside").write_text("not yours")
    (directory / "linked").symlink_to(tmp_path / "outside")
    monkeypatch.setenv("OUR_SECRETS", str(directory))
    return directory


@pytest.mark.usefixtures("directory")
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("token", "t0ken"),
        ("again", "t0ken"),
        ("text", "Bearer t0ken, twice t0ken as me"),
        ("nested.list[0]", "t0ken"),
        ("referring", "t0ken"),
    ],
)
def test_a_secret_is_read_from_its_file_and_stays_a_secret(load: Load, path: str, value: str) -> None:
    secret = load(SECRETS).get(path)
    assert isinstance(secret, Secret)
    assert (str(secret), secret.reveal()) == ("***", value)


@pytest.mark.usefixtures("directory")
def test_a_secret_keeps_its_reference(load: Load) -> None:
    configuration = load(SECRETS)
    assert configuration.get("again").reference == "*$@secrets.token_file"
    assert configuration.get("text").reference == "Bearer {@token}, twice {@token} as {@user}"


@pytest.mark.usefixtures("directory")
@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("gone", "the file .*gone \\(OUR_SECRETS\\) does not exist"),
        ("outside", "'../outside' is outside of the directory that \\$OUR_SECRETS names"),
        ("linked", "'linked' is outside of the directory that \\$OUR_SECRETS names"),
        ("folder", "the file .*folder \\(OUR_SECRETS\\) cannot be read: "),
        ("latin", "the file .*latin \\(OUR_SECRETS\\) cannot be read: .*utf-8"),
    ],
)
def test_an_unreadable_secret_is_named_on_access(load: Load, path: str, message: str) -> None:
    secret = load(SECRETS).get(path)
    with pytest.raises(ConfigurationError, match=rf"^config\.yaml:\d+: `{path}`: secret '\*\$@\S+': {message}"):
        secret.reveal()


@pytest.mark.parametrize("path", ["number", "empty"])
def test_a_secret_without_the_name_of_a_file_is_refused(load: Load, path: str) -> None:
    with pytest.raises(ConfigurationError, match=f"`{path}`: secret .* the field must contain the name of a file"):
        load(SECRETS).get(path)


@pytest.mark.parametrize("value", [None, ""])
def test_a_secret_without_its_environment_variable_names_the_variable(
    load: Load, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.delenv("OUR_SECRETS", raising=False)
    if value is not None:
        monkeypatch.setenv("OUR_SECRETS", value)
    secret = load(SECRETS).get("token")  # the secret has not been read yet
    with pytest.raises(ConfigurationError, match="the environment variable OUR_SECRETS must name"):
        secret.reveal()


def test_a_secret_without_a_directory_in_the_configuration_names_the_field(load: Load) -> None:
    secret = load("a: '*$@b'\nb: file\n").get("a")
    with pytest.raises(ConfigurationError, match=r"no field `secrets\.dir\.env_key`"):
        secret.reveal()


def test_check_secrets_reads_every_secret(load: Load, directory: Path) -> None:
    text = "secrets: {dir: {env_key: OUR_SECRETS}, file: token}\na: [{b: '*$@secrets.file'}]\n"
    load(text).check_secrets()
    (directory / "token").unlink()
    with pytest.raises(ConfigurationError, match=r"`a\[0\]\.b`: secret .* does not exist"):
        load(text).check_secrets()


def test_secret_values_include_secrets_and_named_variables(
    load: Load, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "k3y")
    block = "secrets: {dir: {env_key: OUR_SECRETS}, env: [API_KEY, NOT_SET], t: token, g: gone}\n"
    text = f"{block}a: '*$@secrets.t'\nb: '*$@secrets.g'\n"
    assert (directory / "token").exists()
    assert sorted(load(text).secret_values()) == ["k3y", "t0ken"]


# References that only a cell of the matrix can resolve


WAITING = """\
matrix:
  command: ["@cell.batch", "--b={@cell.batch}/{@size}", '@cell["model.size"]']
  through: "@matrix.command"
  checks: [{upper: "@cell.bound"}]
size: 4
"""


def test_references_to_cell_in_the_matrix_stay_unresolved(load: Load) -> None:
    configuration = load(WAITING)
    configuration.check()
    waits = ["@cell.batch", "--b={@cell.batch}/4", '@cell["model.size"]']
    assert configuration.get("matrix.command") == configuration.get("matrix.through") == waits
    cell = configuration.overlaid({}, {"batch": 8, "model.size": 70, "bound": 1.5})
    assert cell.get("matrix.command") == cell.get("matrix.through") == [8, "--b=8/4", 70]
    assert cell.get("matrix.checks[0].upper") == 1.5


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a: '@cell.x'", "a"),
        ("a: 'x{@cell.x}'", "a"),
        ("a: '@matrix.b'\nmatrix: {b: '@cells.x'}", "a"),
        ("matrix: {b: '@cellular'}", "matrix"),
        ("matrix: {b: '*$@cell.x'}", "matrix"),
    ],
)
def test_references_to_cell_outside_of_the_matrix_are_errors(load: Load, text: str, path: str) -> None:
    with pytest.raises(ConfigurationError, match=r"dangling reference|no field|secret"):
        load(text).get(path)


def test_a_block_named_cell_can_be_referenced(load: Load) -> None:
    assert load("cell: {x: 1}\nmatrix: {b: '@cell.x'}\n").get("matrix.b") == 1
