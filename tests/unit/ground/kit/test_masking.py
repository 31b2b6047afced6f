"""Secrets are masked in each form in which programs print them, also if a stream splits them."""

import base64
import html
import itertools
import json
import re
import urllib.parse
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolbox.ground.kit import masking
from toolbox.ground.kit.masking import Masker

VALUES = [
    "hunter2-and-more",
    "p/a+s=s w&o<r>d",
    'it\'s "quoted" \\ here',
    "na\u00efve \u2603 caf\u00e9",
    "a%2Fb&amp;c?d",
]


def masked(text: str, *values: str) -> str:
    masker = Masker(masking.patterns(values))
    return (masker.feed(text.encode()) + masker.flush()).decode()


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(
    "write",
    [
        urllib.parse.quote,
        urllib.parse.quote_plus,
        lambda value: urllib.parse.quote(value, safe=""),
        lambda value: urllib.parse.quote(value, safe="!'()*"),
        lambda value: urllib.parse.urlencode({"key": value})[4:],
        lambda value: re.sub("%..", lambda match: match[0].lower(), urllib.parse.quote(value, safe="")),
        html.escape,
        lambda value: html.escape(value, quote=False),
        lambda value: html.escape(value).replace("&quot;", "&#34;").replace("&#x27;", "&#39;"),
        json.dumps,
        lambda value: json.dumps(value, ensure_ascii=False).replace("/", "\\/"),
        lambda value: value.replace("'", "'\\''"),
        lambda value: re.sub(r"[^\w@%+=:,./-]", r"\\\g<0>", value, flags=re.ASCII),
        lambda value: re.sub(r'["$`\\]', r"\\\g<0>", value),
        lambda value: json.dumps(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"),
    ],
    ids=[
        "url",
        "url plus",
        "url all",
        "url js",
        "form",
        "lower hex",
        "html",
        "html text",
        "markupsafe",
        "json",
        "php",
        "set -x",
        "printf %q",
        "declare -p",
        "go",
    ],
)
def test_a_value_is_masked_as_urls_html_and_json_escape_it(value: str, write: Callable[[str], str]) -> None:
    assert masked(f"<{write(value).strip(chr(34))}>", value) == "<***>"


@pytest.mark.parametrize("value", [*VALUES, "seven77", "x" * 200])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode], ids=["standard", "urlsafe"])
@pytest.mark.parametrize("before", ["", "u", "us", "use", "user:"])
@pytest.mark.parametrize("after", ["", "1", "12", "123"])
def test_a_value_is_masked_in_base64_wherever_it_begins(
    value: str, encode: Callable[[bytes], bytes], before: str, after: str
) -> None:
    text = encode(f"{before}{value}{after}".encode()).decode()
    rest = masked(f"Basic {text} end", value)
    assert "***" in rest
    assert len(rest) - len("Basic *** end") <= len(before) * 2 + len(after) * 2 + 6


def test_base64_in_lines_is_masked() -> None:
    value = "".join(chr(65 + n * 7 % 26) for n in range(150))
    rest = masked(base64.encodebytes(value.encode()).decode(), value)
    assert rest.split() == ["***", "***", "***"]


@pytest.mark.parametrize("value", ["ab", "abc", "test", "admin", "1234"])
def test_a_short_value_masks_nothing_but_itself(value: str) -> None:
    text = base64.b64encode(bytes(range(256)) * 20).decode() + " The quick brown fox jumps over the lazy dog. dGVz QWRt"
    assert masked(text, value) == text


@given(st.lists(st.integers(0, 40), max_size=4), st.integers(0, 3))
def test_a_secret_in_a_stream_is_masked_wherever_it_is_split(cuts: list[int], index: int) -> None:
    value = VALUES[index]
    text = f"a {urllib.parse.quote(value)} b {value} c".encode()
    masker = Masker(masking.patterns([value]))
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[begin:end] for begin, end in itertools.pairwise(edges)]
    assert b"".join([*map(masker.feed, pieces), masker.flush()]) == b"a *** b *** c"
