"""Fills references in shell commands. The value of a reference becomes quoted words, so that bash never executes it.

The module parses only as much of the shell grammar as it needs to know the quotes around a reference. If the quotes are
uncertain (after a here-document, in a comment, in `${...}`, in arithmetic), the reference is refused.

`references` calls this for the fields of the configuration that hold shell commands.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Final

from toolbox.ground.model.text import as_text

REFERENCE = re.compile(r"\{@(.*?)\}")
_ARITHMETIC = r"""\(\((?:[^()'"`\\\#{}$]|\$\w)*\)\)"""
# Text that a shell reads as a unit, both inside and outside of double quotes. Text with a reference does not match.
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
    """A reference is at a position where its value cannot be quoted."""


def fill(text: str, values: Mapping[str, object]) -> str:
    """Replace each reference by its value as a quoted word. The items of a list become several words.

    Args:
        values: the values by the paths of their references, without `@`. A reference without a value is kept.

    Raises:
        ShellTextError: a reference, with or without a value, is at a position where a value cannot be quoted.
    """
    quotes = dict(_quotes_around_references(text))

    def filled(match: re.Match[str]) -> str:
        if match.start() not in quotes:
            raise ShellTextError(
                f"the value of {match[0]} cannot be quoted here (in a comment, or in or after a here-document, "
                f'`${{...}}`, arithmetic or backquotes): set a variable in `env`, and write "$NAME" here'
            )
        return _quoted(values[match[1]], match, quotes[match.start()]) if match[1] in values else match[0]

    return REFERENCE.sub(filled, text)


def _quoted(value: object, match: re.Match[str], quote: str) -> str:
    words = [as_text(item) for item in (value if isinstance(value, list) else [value])]
    if len(words) == 1 and _needs_no_quotes(words[0], match):
        return words[0]
    # Close the quotes around the reference before the words, and open the quotes again after the words.
    return f"{quote}{' '.join(map(_in_quotes, words))}{quote}"


def _needs_no_quotes(word: str, match: re.Match[str]) -> bool:
    """Tell whether a word means the same without quotes.

    In `$HOME{@x}`, `~{@x}` and `{@x}>file` a word would change its meaning, and so would a word with `=`.
    """
    before, after = match.string[: match.start()], match.string[match.end() :]
    is_apart = not re.search(r"[$~]\w*$", before) and after[:1] not in {"<", ">"}
    return is_apart and "=" not in word and shlex.quote(word) == word


def _in_quotes(word: str) -> str:
    quoted = shlex.quote(word)
    return quoted if quoted != word else f"'{word}'"


def _quotes_around_references(text: str) -> Iterator[tuple[int, str]]:
    """Yield the position of each reference whose quotes are certain, and the quotes: `"`, `'`, or an empty text."""
    around, position, is_word_start = [""], 0, True
    while position < len(text):
        token = _CONTEXTS[around[-1]].match(text, position)
        if token is None:
            return
        kind, position = token.lastgroup, token.end()
        if kind == "comment" and not is_word_start:
            kind, position = None, token.start() + 1
        if kind == "unclear" or (kind == "case" and is_word_start and len(around) > 1):
            return  # in `$(case x in a) ... esac)`, the first `)` does not close `$(`
        if kind == "reference":
            yield token.start(), around[-1]
        elif kind == "opens":
            around.append(token[0][-1].strip("("))
        elif kind == "closes" and len(around) > 1:
            around.pop()
        if token[0] != "\\\n":
            is_word_start = kind in {"blank", "comment"} or token[0] in {"(", ")", "$("}
