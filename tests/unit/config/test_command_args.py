"""The templates `command_args/NAME.yaml.j2` are rendered: values keep their types and cannot change the structure."""

import datetime as dt
import logging
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests import hostile_texts
from toolbox.config import document
from toolbox.config.command_args import Template
from toolbox.config.configuration import Configuration
from toolbox.config.document import Document
from toolbox.config.references import is_reference
from toolbox.ground.model.errors import ConfigurationError
from toolbox.ground.model.secrets import Secret
from toolbox.ground.model.text import as_text

KEY = "group command"
Arguments = Callable[..., dict[str, Any]]


@pytest.fixture
def template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Template]:
    """Return a function that reads a template from its text; messages name it `args.yaml.j2`."""
    monkeypatch.chdir(tmp_path)

    def read(text: str) -> Template:
        Path("args.yaml.j2").write_text(text, encoding="utf-8")
        return Template(Path("args.yaml.j2"))

    return read


@pytest.fixture
def arguments(template: Callable[[str], Template]) -> Arguments:
    """Return a function that renders a template with a configuration, both given as text, for a command."""

    def render(
        text: str, configuration: str = "a: 1", key: str = KEY, replaced: Collection[str] = ()
    ) -> dict[str, Any]:
        document_of = document.parse(configuration, source="config.yaml")
        return template(text).arguments(key, Configuration(document_of), replaced=replaced)

    return render


@pytest.fixture
def block(arguments: Arguments) -> Arguments:
    """Return a function that renders a template in which the block of the command has these lines."""

    def render(lines: str, configuration: str = "a: 1") -> dict[str, Any]:
        body = "".join(f"  {line}\n" for line in lines.splitlines())
        return arguments(f"{KEY}:\n{body}", configuration)

    return render


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("'1.10'", "1.10"),
        ("1.10", 1.1),
        ("null", None),
        ("''", ""),
        ("'null'", "null"),
        ("'yes'", "yes"),
        ("true", True),
        ("0o17", "0o17"),
        ("017", 15),
        ("1_000", 1000),
        ("2026-11-21", dt.date(2026, 11, 21)),
        ("'2026-11-21'", "2026-11-21"),
        ("[1, '2', [null]]", [1, "2", [None]]),
        ("{}", {}),
        ("[]", []),
        ("{k: {l: '007'}, 8: x, true: y}", {"k": {"l": "007"}, 8: "x", True: "y"}),
        ("{items: 1, keys: 2, values: 3, get: 4}", {"items": 1, "keys": 2, "values": 3, "get": 4}),
    ],
)
def test_a_value_keeps_its_type(block: Arguments, written: str, value: Any) -> None:
    found = block("x: {{ x }}", f"x: {written}")["x"]
    assert (found, type(found)) == (value, type(value))


# Texts that the renderer itself uses as placeholders, and texts with a special meaning in YAML.
OWN = [
    "\ue000",
    "\ue0000-0\ue001",
    "\ue000deadbeefdeadbeef-0\ue001",
    "<<",
    "=",
    "SET_AT_RUNTIME",
    "{% raise %}",
    "\x00",
]
HOSTILE = [text for text in [*hostile_texts.texts(Path("/nowhere")), *OWN] if not is_reference(text)]


@pytest.mark.parametrize("place", ["{{ x }}", "'{{ x }}'", '"{{ x }}"', "[{{ x }}]", "{k: {{ x }}}"])
def test_a_value_never_changes_the_structure_around_it(template: Callable[[str], Template], place: str) -> None:
    text = f"{KEY}:\n  before: 1\n  x: {place}\n  after: 2\n".replace("{{ x }}", "{{ m.x }}")
    read = template(text)
    for value in HOSTILE:
        found = read.arguments(KEY, Configuration(Document({"m": {"x": value}}, "config.yaml")))
        shapes: dict[str, Any] = {"[{{ x }}]": [value], "{k: {{ x }}}": {"k": value}}
        assert found == {"before": 1, "x": shapes.get(place, value), "after": 2}


yaml_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False),
        st.dates(),
        st.text().filter(lambda text: not is_reference(text)),
        st.text("{}%#:-&*!|>'\"\\ \n\t\ue000\ue001-0", max_size=12).filter(lambda text: not is_reference(text)),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def expression(tmp_path_factory: pytest.TempPathFactory) -> Template:
    """Return a template with the same expression in each place where a value may be."""
    file = tmp_path_factory.mktemp("command_args") / "args.yaml.j2"
    file.write_text(f"{KEY}:\n  x: {{{{ m.x }}}}\n  list: [1, {{{{ m.x }}}}]\n  text: 'a{{{{ m.x }}}}b'\n  end: 1\n")
    return Template(file)


@settings(deadline=None, derandomize=True, max_examples=300)
@given(yaml_values)
@example({"ci_presets": {"names": None}, "items": []})
def test_expressions_preserve_every_yaml_value(expression: Template, value: Any) -> None:
    found = expression.arguments(KEY, Configuration(Document({"m": {"x": value}}, "config.yaml")))
    assert found == {"x": value, "list": [1, value], "text": f"a{as_text(value)}b", "end": 1}


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("'{{ x }}'", "8"),
        ('"{{ x }}"', "8"),
        ('"{{ nothing }}"', "null"),
        ("is {{ x > 7 }}", "is true"),
        ("v{{ x }}", "v8"),
        ("{{ x }}{{ x }}", "88"),
        ("{{ x }} {{ text }}", "8 1.10"),
        ("{{ x }}.0", "8.0"),
        ("{{ 'a: b' }}", "a: b"),
        ("{{ '1.10' }}", "1.10"),
        ("{{ x + 1 }}", 9),
        ("{{ x > 7 }}", True),
        ("{{ none }}", None),
        ("{{ text ~ '-' ~ x }}", "1.10-8"),
        ("{{ [x, text] }}", [8, "1.10"]),
        ("{{ (x, text) }}", [8, "1.10"]),
        ("{{ {'k': m} }}", {"k": {"deep": [8]}}),
        ("{{ m }}", {"deep": [8]}),
        ("m is {{ m }}", 'm is {"deep": [8]}'),
        ("{{ m['deep'][0] }}", 8),
        ("{{ m.deep | first }}", 8),
        ("{{ m.none | default('d') }}", "d"),
        ("{{ none_at_all | default(5) }}", 5),
        ("{{ m.items() | list }}", [["deep", [8]]]),
        ("{{ x if m.deep else 0 }}", 8),
        ("{{ text | upper }}", "1.10"),
        ("[{{ x }}, {{ text }}]", [8, "1.10"]),
        ("{a: {{ x }}, '{{ text }}': {{ m }}}", {"a": 8, "1.10": {"deep": [8]}}),
        ("|\n    line {{ x }}\n    {{ text }}", "line 8\n1.10"),
        (">-\n    {{ text }}\n    {{ x }}", "1.10 8"),
        ("{{ m | tojson }}", {"deep": [8]}),
        ("{{ text | tojson }}", "1.10"),
        ("{{ (text ~ ': x') | tojson }}", "1.10: x"),
        ("1.10", 1.1),
        ("", None),
    ],
)
def test_expressions_are_values_and_literal_text_is_yaml(block: Arguments, line: str, value: Any) -> None:
    assert block(f"x: {line}", "{x: 8, text: '1.10', nothing: null, m: {deep: [8]}}")["x"] == value


def test_keys_can_come_from_expressions(block: Arguments) -> None:
    found = block("{{ a }}: 1\nv_{{ a }}: 2\n'{{ n }}': 3\n{{ n }}: 4", "{a: 'k: v', n: 8}")
    assert found == {"k: v": 1, "v_k: v": 2, "8": 4}


GENERATED = """\
first one:
  x: 1

{{ name }} one:
  x: 2
{% for prefix in prefixes %}
{{ prefix }}/group command:
  x: {{ prefix }}
{% endfor %}
group {{ name }}:
  x: 3
last one:
  x: 4
"""


@pytest.mark.parametrize(
    ("key", "x"),
    [
        ("first one", 1),
        ("made one", 2),
        ("p/group command", "p"),
        ("q/group command", "q"),
        ("group made", 3),
        ("last one", 4),
    ],
)
def test_a_command_can_be_named_by_an_expression_or_in_a_loop(arguments: Arguments, key: str, x: object) -> None:
    assert arguments(GENERATED, "{name: made, prefixes: [p, q]}", key) == {"x": x}


def test_a_missing_key_lists_the_available_keys(arguments: Arguments) -> None:
    with pytest.raises(ConfigurationError) as caught:
        arguments(GENERATED, "{name: made, prefixes: [p]}", "frist one")
    first, *listed = str(caught.value).split("\n  ")
    assert first == "args.yaml.j2 has no key `frist one`: did you mean first one or last one?"
    assert listed == ["first one", "group made", "last one", "made one", "p/group command"]


def test_prefixes_and_suffixes_are_part_of_the_key(arguments: Arguments) -> None:
    text = "{p}group command{s}:\n  x: {v}\n"
    pieces = [("", ""), ("a/", ""), ("", "/b"), ("a/", "/b")]
    whole = "".join(text.format(p=p, s=s, v=index) for index, (p, s) in enumerate(pieces))
    keys = [f"{p}group command{s}" for p, s in pieces]
    assert [arguments(whole, key=key) for key in keys] == [{"x": 0}, {"x": 1}, {"x": 2}, {"x": 3}]


def test_quoted_keys_and_comments_are_read(arguments: Arguments) -> None:
    text = "# group one:\n\"group one\": # why\n  x: 1\n'group two' :\n  x: 2\n"
    assert [arguments(text, key=key) for key in ("group one", "group two")] == [{"x": 1}, {"x": 2}]


@pytest.mark.parametrize("text", ["group command:\n", "group command: {}\n", "group command: null\n"])
def test_a_command_without_arguments_has_none(arguments: Arguments, text: str) -> None:
    assert arguments(text) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "args.yaml.j2 has no key `group command`: there are no keys"),
        ("# nothing\n", "args.yaml.j2 has no key `group command`: there are no keys"),
        ("{# nothing #}\n", "args.yaml.j2 has no key `group command`: there are no keys"),
        ("- a\n", "args.yaml.j2"),
        ("text\n", "args.yaml.j2"),
        ("group command: 5\n", "args.yaml.j2: `group command` must be a mapping of arguments, not 5"),
        ("group command: [a, b]\n", "must be a mapping of arguments"),
        ("group command: text\n", "must be a mapping of arguments"),
        ("group command: {{ a }}\n", "must be a mapping of arguments"),
        ("group command:\n  {{ [a] }}: 1\n", "not YAML: found unhashable key"),
        ("group command:\n  {{ {'k': a} }}: 1\n", "not YAML: found unhashable key"),
        ("group one:\n  x: 1\ngroup command:\n  x: *nothing\n", "not YAML: found undefined alias"),
        ("x:\n  a: {{ }}\n", "args.yaml.j2:2: Expected an expression"),
        ("x:\n  a: {% if %}\n", "args.yaml.j2:2: Expected an expression"),
        ("{% if a %}\nx: 1\n", ": Unexpected end of template"),
        ("group command: {{ a | nothing }}\n", "args.yaml.j2:1: No filter named 'nothing'"),
    ],
)
def test_a_template_that_is_wrong_is_refused(arguments: Arguments, text: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        arguments(text)
    assert str(caught.value).startswith("args.yaml.j2")
    assert message in str(caught.value)


def test_a_missing_template_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"the command_args file .* does not exist"):
        Template(tmp_path / "none.yaml.j2")


FAULTY = """\
group good:
  x: {{ a.b }}
group undefined:
  y: 1
  x: {{ aa }}
group field:
  x: {{ a.c }}
group item:
  x: {{ a["bb"] }}
group raises:
  # a comment
  x: {{ "set a.b" | raise_exception }}
group divides:

  x: {{ 1 / 0 }}
group yaml:
  x: [1
group reference:
  x: "@a.nothing"
group broken:
  x: {{ broken }}
group tab:
	x: 1
group last:
  x: {{ a.b }}
"""


@pytest.mark.parametrize("key", ["group good", "group last"])
def test_a_broken_block_breaks_only_its_own_command(arguments: Arguments, key: str) -> None:
    assert arguments(FAULTY, "{a: {b: 7}, broken: '@a.x'}", key) == {"x": 7}


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("group undefined", "args.yaml.j2:5: 'aa' is undefined: did you mean a?"),
        ("group field", "args.yaml.j2:7: `a` has no field `c`: the fields are b"),
        ("group item", "args.yaml.j2:9: `a` has no field `bb`: did you mean b?"),
        ("group raises", "args.yaml.j2:12: set a.b"),
        ("group divides", "args.yaml.j2:15: ZeroDivisionError: division by zero"),
        ("group yaml", "args.yaml.j2: the rendered template is not YAML: expected ',' or ']'"),
        ("group reference", "dangling reference '@a.nothing': no field `a.nothing`"),
        ("group broken", "config.yaml:1: `broken`: dangling reference '@a.x'"),
        ("group tab", "args.yaml.j2: the rendered template is not YAML: found character '\\t'"),
    ],
)
def test_a_fault_in_a_block_is_named_with_its_line(arguments: Arguments, key: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        arguments(FAULTY, "{a: {b: 7}, broken: '@a.x'}", key)
    assert message in str(caught.value)


def test_anchors_work_across_blocks(arguments: Arguments) -> None:
    text = "group one: &one\n  x: 1\n  y: &y {k: {{ a }}}\ngroup command:\n  <<: *one\n  x: 2\n  z: *y\n"
    assert arguments(text) == {"x": 2, "y": {"k": 1}, "z": {"k": 1}}


DEFINITIONS = """\
{% set top = a + 1 %}
{% macro image(tag) %}registry/{{ tag }}:v{{ a }}{% endmacro %}
group other:
  x: {{ nothing_at_all }}
{% set between = [a, top] %}
{% set captured %}v{{ a }}{% endset %}
{% if a > 5 %}{% set size = "large" %}{% else %}{% set size = "small" %}{% endif %}
group command:
  top: {{ top }}
  between: {{ between }}
  image: {{ image("x: y") }}
  captured: {{ captured }}
  whole: {{ captured | upper }}
  size: {{ size }}
"""


def test_definitions_are_visible_in_later_blocks(arguments: Arguments) -> None:
    assert arguments(DEFINITIONS, "a: 7") == {
        "top": 8,
        "between": [7, 8],
        "image": "registry/x: y:v7",
        "captured": "v7",
        "whole": "V7",
        "size": "large",
    }


STRUCTURED = """\
group command:
{% for name, value in settings.items() %}
  {{ name }}: {{ value }}
{% endfor %}
{% if settings.steps > 5 %}
  long: true
{% else %}
  long: {{ nothing }}
{% endif %}
{%- if extra %}
  extra: {{ extra }}
{%- endif %}

  last: 1
{% if extra -%}
group optional:
  x: 1
{%- endif %}

group after:
  y: 2
"""


def test_loops_and_conditions_write_arguments(arguments: Arguments) -> None:
    found = arguments(STRUCTURED, "{settings: {steps: 9, tag: '1.10'}, extra: []}")
    assert found == {"steps": 9, "tag": "1.10", "long": True, "last": 1}


@pytest.mark.parametrize(("key", "expected"), [("group optional", {"x": 1}), ("group after", {"y": 2})])
def test_a_block_in_a_condition_and_the_one_after_it_are_found(
    arguments: Arguments, key: str, expected: object
) -> None:
    assert arguments(STRUCTURED, "{settings: {steps: 9}, extra: yes}", key) == expected


def test_a_block_with_a_false_condition_is_missing(arguments: Arguments) -> None:
    with pytest.raises(ConfigurationError, match="has no key `group optional`"):
        arguments(STRUCTURED, "{settings: {steps: 9}, extra: null}", "group optional")


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("path | basename", "c.tar"),
        ("path | dirname", "/a/b"),
        ("empty | or_env('FROM_ENV')", "from the environment"),
        ("path | or_env('FROM_ENV')", "/a/b/c.tar"),
        ("empty | or_env('NOT_SET')", None),
    ],
)
def test_the_filters_of_the_templates_of_topsail(
    block: Arguments, monkeypatch: pytest.MonkeyPatch, expression: str, value: object
) -> None:
    monkeypatch.setenv("FROM_ENV", "from the environment")
    monkeypatch.delenv("NOT_SET", raising=False)
    assert block(f"x: {{{{ {expression} }}}}", "{path: /a/b/c.tar, empty: null}") == {"x": value}


def test_log_warning_logs_and_renders_nothing(block: Arguments, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert block("x: 1{{ 'a.b is deprecated' | log_warning }}\n{{ 'twice' | log_warning }}") == {"x": 1}
    assert caplog.messages == ["a.b is deprecated", "twice"]


def test_a_warning_of_another_block_is_not_logged(arguments: Arguments, caplog: pytest.LogCaptureFixture) -> None:
    text = "group other:\n  x: 1\n{{ 'no' | log_warning }}\ngroup command:\n  x: 2\n"
    assert (arguments(text), caplog.messages) == ({"x": 2}, [])


def test_set_at_runtime_placeholders_are_kept(block: Arguments) -> None:
    assert block("x: SET_AT_RUNTIME\ny: [SET_AT_RUNTIME]") == {"x": "SET_AT_RUNTIME", "y": ["SET_AT_RUNTIME"]}


REFERRING = "{a: '@b', b: {k: [1, '@c']}, c: 8, text: '<{@c}>', presets: '@ci_presets', ci_presets: {p: {a: '@none'}}}"


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("{{ a }}", {"k": [1, 8]}),
        ("{{ a.k[1] }}", 8),
        ("{{ text }}", "<8>"),
        ('"@c"', 8),
        ("'c is {@c}'", "c is 8"),
        ('["@a"]', [{"k": [1, 8]}]),
        ("{{ ci_presets.p.a }}", "@none"),
    ],
)
def test_references_are_resolved_in_templates(block: Arguments, line: str, value: object) -> None:
    assert block(f"x: {line}", REFERRING) == {"x": value}


SECRETS = "{secrets: {dir: {env_key: OUR_SECRETS}, file: token}, token: '*$@secrets.file'}"


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("{{ token }}", "t0ken: '"),
        ("'{{ token }}'", "t0ken: '"),
        ("Bearer {{ token }}!", "Bearer t0ken: '!"),
        ('"*$@secrets.file"', "t0ken: '"),
    ],
)
def test_a_secret_stays_a_secret(
    block: Arguments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, value: str
) -> None:
    (tmp_path / "token").write_text("t0ken: '\n")
    monkeypatch.setenv("OUR_SECRETS", str(tmp_path))
    secret = block(f"x: {line}", SECRETS)["x"]
    assert isinstance(secret, Secret)
    assert (repr(secret), secret.reveal()) == ("***", value)


def test_a_secret_inside_a_mapping_stays_a_secret(block: Arguments) -> None:
    found = block("x: {{ {'k': [token]} }}", SECRETS)
    assert isinstance(found["x"]["k"][0], Secret)


def test_a_secret_cannot_be_used_with_tojson(block: Arguments) -> None:
    with pytest.raises(ConfigurationError, match=r"args\.yaml\.j2:2: a secret cannot be used with `tojson`"):
        block("x: {{ {'k': token} | tojson }}", SECRETS)


def test_a_template_is_rendered_again_for_each_configuration(template: Callable[[str], Template]) -> None:
    read = template(f"{KEY}:\n  x: {{{{ a }}}}\n")
    values = [read.arguments(KEY, Configuration(Document({"a": value}, "f")))["x"] for value in (1, "two", None)]
    assert values == [1, "two", None]


def test_keys_are_listed_in_the_order_of_the_file(template: Callable[[str], Template]) -> None:
    assert template(GENERATED).keys == ("first one", "last one")


REPLACED = """\
group command:
  _common: &common {k: {{ a }}}
  _spare: {{ nothing.at.all }}
  plain: {{ nothing.at.all }}
  quoted: "{{ nothing | upper }} and {{ a }}"
  nested: {deep: [{{ a.b.c }}, 1]}
  folded: {{ 1 / 0 }}
  reference: "@a.nothing"
  captured: {{ captured }}
  kept: *common
  last: {{ a }}
"""
SET = "{% set captured %}v{{ nothing }}{% endset %}\n"
NAMES = ("plain", "quoted", "nested", "folded", "reference", "captured")


def test_replaced_arguments_may_fail_and_anchors_are_left_out(arguments: Arguments) -> None:
    assert arguments(SET + REPLACED, replaced=NAMES) == {"kept": {"k": 1}, "last": 1}


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("plain", "args.yaml.j2:5: 'nothing' is undefined"),
        ("quoted", "args.yaml.j2:6: 'nothing' is undefined"),
        ("nested", "args.yaml.j2:7: "),
        ("folded", "args.yaml.j2:8: ZeroDivisionError: division by zero"),
        ("reference", "dangling reference '@a.nothing'"),
        ("captured", "args.yaml.j2:1: 'nothing' is undefined"),
    ],
)
def test_arguments_that_are_not_replaced_fail_with_their_line(arguments: Arguments, missing: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        arguments(SET + REPLACED, replaced={*NAMES} - {missing})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "{{ nothing }}\ngroup command:\n  x: 1\n",
        "group command:\n  x: 1\n  {{ nothing }}\n",
        "group command:\n  {{ nothing }}: 1\n",
        "group command: {{ nothing }}\n",
        "group command:\n  {% if nothing %}\n  x: 1\n  {% endif %}\n",
        'group command:\n  y: 1\n  x: {{ "no" | raise_exception }}\n',
    ],
)
def test_a_fault_in_a_condition_fails_even_if_the_value_is_replaced(arguments: Arguments, text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"args\.yaml\.j2:\d: ('nothing' is undefined|no$)"):
        arguments(text, replaced=["x"])


def test_fields_may_have_the_names_of_jinja_globals(arguments: Arguments) -> None:
    text = "group command:\n{% for caller in list %}\n  {{ caller }}: {{ kwargs }} {{ loop.index }}\n{% endfor %}\n"
    assert arguments(text, "{list: [x, y], kwargs: 5}") == {"x": "5 1", "y": "5 2"}


def test_a_number_that_may_be_text_is_named_once(
    template: Callable[[str], Template], caplog: pytest.LogCaptureFixture
) -> None:
    text = 'group command:\n  tag: 3.10\n  quoted: "3.10"\n  lr: 1e-4\n  fast: on\n  value: {{ tag }}\n'
    read = template(text)
    configuration = Configuration(document.parse("tag: '3.10'\n", source="c.yaml"))
    for _ in range(2):
        found = read.arguments(KEY, configuration)
    assert found == {"tag": 3.1, "quoted": "3.10", "lr": 1e-4, "fast": True, "value": "3.10"}
    assert caplog.messages == [
        'args.yaml.j2: `group command`: `3.10` is read as 3.1: write "3.10" for the text, or 3.1'
    ]
