"""References in a text that bash will execute: the value of each becomes quoted words, so that it is never executed.

Only as much of the shell's grammar is read as is needed to know in which quotes a reference stands. Where that is not
known for certain (behind a here-document, in a comment, in `${...}`, in arithmetic), the reference is refused.

`references` calls this for the fields of the configuration that hold shell commands.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Final

from toolbox.model.text import as_text

_REFERENCE = re.compile(r"\{@(.*?)\}")
_ARITHMETIC = r"""\(\((?:[^()'"`\\\#{}$]|\$\w)*\)\)"""
# What a shell reads as one piece in and out of double quotes. A piece that holds a reference does not match.
_PIECE = rf"""
    \\(?!\{{@). | \${_ARITHMETIC} | \$\{{[^{{}}'"`\\$]*\}} | `(?:(?!\{{@)[^`\\])*` | \$[\w$!?*@\#-]
"""
_UNCLEAR = r"[\\$](?=\{@) | \$\\\n | \$\[ | \$\(\( | \$\{ | `"
_FLAGS: Final = re.VERBOSE | re.DOTALL
_PLAIN = re.compile(
    rf"""
    (?P<reference>\{{@[^\n]*?\}})
    | (?P<piece>{_PIECE} | {_ARITHMETIC} | <<< | \$'(?:(?!\{{@)[^'\\]|\\(?!\{{@).)*')
    | (?P<unclear>{_UNCLEAR} | \(\( | [<(]\\\n | \\\n(?=\#) | << | \$')
    | (?P<opens>\( | \$?" | ')
    | (?P<closes>\))
    | (?P<blank>[ \t\n;&|<>])
    | (?P<comment>\#[^\n]*)
    | (?P<case>case\b)
    | .
    """,
    _FLAGS,
)
_DOUBLE = re.compile(
    rf"""
    (?P<reference>\{{@[^\n]*?\}})
    | (?P<piece>{_PIECE})
    | (?P<unclear>{_UNCLEAR})
    | (?P<opens>\$\()
    | (?P<closes>")
    | .
    """,
    _FLAGS,
)
_SINGLE = re.compile(r"(?P<reference>\{@[^\n]*?\}) | (?P<closes>') | .", _FLAGS)
_CONTEXTS: Final = {'"': _DOUBLE, "'": _SINGLE, "": _PLAIN}


class ShellTextError(ValueError):
    """A reference stands where its value cannot be quoted."""


def fill(text: str, values: Mapping[str, object]) -> str:
    """Return the text with the value of each reference as one quoted word, or as several words if it is a list.

    Args:
        values: the values by what stands behind the `@`. A reference that has no value stays as it is.

    Raises:
        ShellTextError: a reference, with a value or without, stands where a value cannot be quoted.
    """
    quotes = dict(_quotes_around_references(text))

    def filled(match: re.Match[str]) -> str:
        if match.start() not in quotes:
            raise ShellTextError(
                f"{match[0]} is where its value cannot be quoted (in a comment, or in or after a here-document, "
                f'`${{...}}`, arithmetic or backquotes): set a variable in `env`, and write "$NAME" here'
            )
        return _quoted(values[match[1]], match, quotes[match.start()]) if match[1] in values else match[0]

    return _REFERENCE.sub(filled, text)


def _quoted(value: object, match: re.Match[str], quote: str) -> str:
    words = [as_text(item) for item in (value if isinstance(value, list) else [value])]
    if len(words) == 1 and _needs_no_quotes(words[0], match):
        return words[0]
    # The quotes that the reference stands in are closed before the words, and opened again behind them.
    return f"{quote}{' '.join(map(_in_quotes, words))}{quote}"


def _needs_no_quotes(word: str, match: re.Match[str]) -> bool:
    """Tell whether a word means the same without quotes: not in `$HOME{@x}`, `~{@x}`, `{@x}>file`, `{@x} command`."""
    before, after = match.string[: match.start()], match.string[match.end() :]
    is_apart = not re.search(r"[$~]\w*$", before) and after[:1] not in {"<", ">"}
    return is_apart and "=" not in word and shlex.quote(word) == word


def _in_quotes(word: str) -> str:
    quoted = shlex.quote(word)
    return quoted if quoted != word else f"'{word}'"


def _quotes_around_references(text: str) -> Iterator[tuple[int, str]]:
    """Yield where each reference begins whose quotes are known, and the quotes: `"`, `'`, or none."""
    around, position, is_word_start = [""], 0, True
    while position < len(text):
        token = _CONTEXTS[around[-1]].match(text, position)
        if token is None:
            return
        kind, position = token.lastgroup, token.end()
        if kind == "comment" and not is_word_start:
            kind, position = None, token.start() + 1
        if kind == "unclear" or (kind == "case" and is_word_start and len(around) > 1):
            return  # in `$(case x in a) ... esac)` the first `)` closes nothing
        if kind == "reference":
            yield token.start(), around[-1]
        elif kind == "opens":
            around.append(token[0][-1].strip("("))
        elif kind == "closes" and len(around) > 1:
            around.pop()
        if token[0] != "\\\n":
            is_word_start = kind in {"blank", "comment"} or token[0] in {"(", ")", "$("}
