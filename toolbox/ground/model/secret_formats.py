"""Finds secrets in a text by their well-known formats. It returns the kind of a secret, never the secret itself.

`find` is for texts of people, such as notebooks. `find_tokens` is for large files of any content: it skips passwords
that are assigned to a name, because programs print many harmless texts of that form.

The list of formats is short on purpose. It was compared with the library detect-secrets (version 1.5.0) on a notebook
with eleven secrets, an image and a hash. The library found seven of the secrets. It missed the keys of Google, OpenAI
and W&B, and the password in a quoted string. It also reported the image and the hash, because it judges strings by
their entropy. The list finds all eleven and nothing else. Formats of tokens rarely change, and a new format needs one
more line here. So another library is not worth its maintenance.

Each expression has bounded repetitions, and those that are long begin near the beginning of a word, so that a search
takes linear time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

# Also after an escape of JSON, Python or a URL, and after a color of a terminal, whose last character is a letter or a
# digit.
_WORD: Final = (
    r"(?:(?<![A-Za-z0-9_\-])|(?<=\\[abefnrtv])|(?<=\\x[0-9A-Fa-f]{2})|(?<=\\u[0-9A-Fa-f]{4})|(?<=%[0-9A-Fa-f]{2})"
    r"|(?<=[\[;][0-9]m)|(?<=[\[;][0-9]{2}m))"
)
# Also glued to a short word, as in `xAIza...`. A long run of such characters is base64 or another encoding, in which
# the beginning of a token occurs by chance.
_GLUED: Final = rf"(?:{_WORD}|(?<![A-Za-z0-9+/_\-]{{12}}))"
_GITLAB: Final = ("pat", "dt", "rt", "cbt", "ptt", "ft", "imt", "agent", "soat", "oas", "ffct", "rtr", "wt")
# A format without `_WORD` and `_GLUED` begins with characters that do not occur by chance.
_FORMATS: Final = {
    "a token of GitHub": r"(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{22,255})",
    "a token of GitLab": (
        rf"(?:gl(?:{'|'.join(_GITLAB)})-[A-Za-z0-9_\-]{{20,255}}"
        rf"|{_WORD}gl[a-z]{{2,5}}-[A-Za-z0-9_\-]{{20,255}}|GR1348941[A-Za-z0-9_\-]{{20,255}})"
    ),
    # In the middle of a word, the key must contain a digit, because protein sequences consist of the same letters.
    "an access key of AWS": (rf"(?:{_WORD}|{_GLUED}(?=[A-Z]{{4,19}}[2-7]))(?:AKIA|ASIA)[A-Z2-7]{{16}}(?![A-Za-z0-9])"),
    "a key of Google": (
        rf"(?:{_GLUED}(?:AIza[A-Za-z0-9_\-]{{35}}|1//0[A-Za-z0-9_\-]{{40,255}})"
        r"|ya29\.[A-Za-z0-9_.\-]{20,255}|GOCSPX-[A-Za-z0-9_\-]{28})"
    ),
    "a token of Hugging Face": r"(?:hf_[A-Za-z0-9]{30,255}|api_org_[A-Za-z0-9]{30,255})",
    # Glued to a word, `sk-` is the end of `task-`, so then the rest of the format must be there.
    "a key of a language model": (
        rf"(?:{_WORD}sk-(?=[A-Za-z_\-]{{0,200}}[0-9])[A-Za-z0-9_\-]{{20,255}}"
        r"|sk-ant-[a-z]{2,12}[0-9]{2}-[A-Za-z0-9_\-]{20,255}"
        r"|sk-[A-Za-z0-9_\-]{20,150}T3BlbkFJ[A-Za-z0-9_\-]{20,150})"
    ),
    "a token of npm": r"npm_[A-Za-z0-9]{36}(?![A-Za-z0-9])",
    "a token of PyPI": r"pypi-AgE[A-Za-z0-9_\-]{40,1000}",
    "a key of W&B": (
        r"(?:wandb_v1_[A-Za-z0-9_]{40,255}"
        # Also the value of a variable in the environment of a Kubernetes container, in YAML or JSON.
        r"|WANDB_API_KEY(?:\\?[\"'])?\]?(?:[\s,]{1,40}(?:\\?[\"'])?value(?:\\?[\"'])?)?[\s:=,]{1,5}(?:\\?[\"'])?(?:local-)?[0-9a-f]{40}(?![0-9a-f])"
        r"|api\.wandb\.ai\s{1,20}login\s{1,20}\S{1,100}\s{1,20}password\s{1,20}(?:local-)?[0-9a-f]{40}(?![0-9a-f]))"
    ),
    "a token of Slack": (
        r"(?:xox[abeoprs]-[A-Za-z0-9\-]{10,255}|xapp-[0-9]-[A-Za-z0-9\-]{30,255}"
        r"|hooks\.slack\.com/services/T[A-Z0-9]{6,14}/B[A-Z0-9]{6,14}/[A-Za-z0-9]{16,40})"
    ),
    "a key of Stripe": r"[rs]k_live_[A-Za-z0-9]{20,255}",
    "a key of an Azure account": r"AccountKey=[A-Za-z0-9+/]{80,100}={0,2}",
    "a JSON web token": (
        rf"{_GLUED}eyJ[A-Za-z0-9_\-]{{10,4000}}\.eyJ[A-Za-z0-9_\-]{{10,4000}}\.[A-Za-z0-9_\-]{{10,200}}"
    ),
    "a private key": r"-----BEGIN (?:[A-Z]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----",
}
_KNOWN: Final = [(kind, re.compile(expression)) for kind, expression in _FORMATS.items()]
_ADDRESS: Final = re.compile(r"://[^\s/:@'\"]{0,100}:([^\s/@'\"]{3,200})@")
_ASSIGNMENT: Final = re.compile(
    r"""(?:password|passwd|secret|api_?key|access_?key|token)(?:_[a-z0-9]{1,20})?(?:\\?["'])?\]?\s{0,5}[=:]\s{0,5}"""
    r"""\\?["']([^"'\s\\]{8,200})\\?["']""",
    re.IGNORECASE,
)
_KEY: Final = re.compile(r"""\bkey\s{0,5}=\s{0,5}\\?["']([A-Za-z0-9]{32,200})\\?["']""")
# The beginnings of the matches of each format. Searching for them first is much faster than for the expressions.
_BEGINNINGS: Final = {
    "a token of GitHub": ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
    "a token of GitLab": (*(f"gl{name}-" for name in _GITLAB), "GR1348941"),
    "an access key of AWS": ("AKIA", "ASIA"),
    "a key of Google": ("AIza", "ya29.", "GOCSPX-", "1//0"),
    "a token of Hugging Face": ("hf_", "api_org_"),
    "a key of a language model": ("sk-",),
    "a token of npm": ("npm_",),
    "a token of PyPI": ("pypi-AgE",),
    "a key of W&B": ("wandb_v1_", "WANDB_API_KEY", "api.wandb.ai"),
    "a token of Slack": ("xox", "xapp-", "hooks.slack.com/"),
    "a key of Stripe": ("rk_live_", "sk_live_"),
    "a key of an Azure account": ("AccountKey=",),
    "a JSON web token": ("eyJ",),
    "a private key": ("-----BEGIN ",),
}
_ADDRESS_KIND: Final = "an address with a password"
_TOKENS: Final = [
    *((_BEGINNINGS[kind], kind, expression) for kind, expression in _KNOWN),
    (("://",), _ADDRESS_KIND, _ADDRESS),
]
LONGEST: Final = 8_300
"""Each match of `find_tokens` is at most this long, in characters."""
BEFORE: Final = 12
"""The number of characters before a match that decide whether it is one."""
# A password in an address may contain these characters: only a password that is a placeholder as a whole is harmless.
_PLACEHOLDER_IN_ADDRESS: Final = re.compile(
    r"<[^<>]*>|\$?\{[^{}]*\}|\$\w+|\$\([^()]*\)|%\(\w+\)s|%s|\*+|x{3,}|\.{3}|your[_-]\w+|placeholder|change_?me|dummy|example",
    re.IGNORECASE,
)
_PLACEHOLDER: Final = re.compile(r"[<>{}$*()%]|\.\.\.|x{4}|your|example|placeholder|change_?me|dummy", re.IGNORECASE)


def find(text: str) -> Iterator[tuple[int, str]]:
    """Yield the secrets in a text: the number of the line, from 1, and the kind. Each kind is yielded once per line."""
    for kind, expression in _KNOWN:
        yield from _lines(text, kind, expression)
    yield from _lines(text, _ADDRESS_KIND, _ADDRESS)
    yield from _lines(text, "a password or key as text", _ASSIGNMENT)
    yield from _lines(text, "a password or key as text", _KEY)


def find_tokens(text: str, start: int = 0) -> Iterator[tuple[int, str]]:
    """Yield the offset and the kind of each token, key and address with a password in a text of any size.

    In one line, only the first match of each beginning is yielded.

    Args:
        start: the offset at which the search begins.
    """
    for beginnings, kind, expression in _TOKENS:
        for beginning in beginnings:
            offset = start - 1
            while (offset := text.find(beginning, offset + 1)) >= 0:
                match = expression.match(text, offset)
                if match and (not expression.groups or _is_password(match[1])):
                    yield offset, kind
                    if (offset := text.find("\n", offset)) < 0:
                        break


def _lines(text: str, kind: str, expression: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    line, counted, latest = 1, 0, 0
    for match in expression.finditer(text):
        if expression.groups and not (_is_password if expression is _ADDRESS else _is_random)(match[1]):
            continue
        line += text.count("\n", counted, match.start())
        counted = match.start()
        if line != latest:
            latest = line
            yield line, kind


def _is_password(value: str) -> bool:
    """Return whether a value in an address may be a password, and not a placeholder such as `<password>`."""
    return _PLACEHOLDER_IN_ADDRESS.fullmatch(value) is None


def _is_random(value: str) -> bool:
    """Return whether a value may be a secret, and not a placeholder such as `<token>` or a word such as `password`."""
    if _PLACEHOLDER.search(value):
        return False
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value))
