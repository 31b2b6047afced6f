"""Finds the parameters of a test that a notebook does not have.

papermill writes the parameters of a test into a cell after the cell with the tag `parameters`. If the tagged cell does
not assign a parameter, for example because its name is misspelled, the notebook runs with its own values and passes.
papermill only warns about this. `toolbox.notebooks` calls `unknown` before the run, and the worker calls it with the
language of the kernel.
"""

from __future__ import annotations

import ast
import re
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

TAG: Final = "parameters"
"""The tag of the cell that assigns the parameters."""
INJECTED_TAG: Final = "injected-parameters"
"""The tag of the cell that papermill adds."""
_PYTHON: Final = "python"
_LONGEST_PARSED: Final = 1 << 20  # characters
_WORD: Final = re.compile(r"\.?[^\W\d][\w.]*")  # in R, names may contain dots
_COMMENT: Final = re.compile(r"\s*(?:#|//|--|%)")
_TRANSPARENT_MAGIC: Final = re.compile(r"\s*%%(?:time|capture|prun)\b.*")  # these execute the cell as it is
# The syntax of IPython that Python does not have, and the Python statements in its place.
_IPYTHON: Final = (
    (re.compile(r"^(\s*)%time\s+(?=\S)", re.MULTILINE), r"\1"),
    (re.compile(r"^(\s*)(?:[%!?].*|.*\?)[^\S\n]*$", re.MULTILINE), r"\1pass"),
    (re.compile(r"^([^#\n=]*=\s*)[%!].*$", re.MULTILINE), r"\1None"),
)


def unknown(parameters: Iterable[str], tagged: Sequence[str | None], language: str) -> tuple[list[str], frozenset[str]]:
    """Return the parameters that the tagged cell does not assign, and the names that it assigns.

    Args:
        tagged: the source of each cell with the tag; None for a cell without code.
        language: the language of the notebook as in `comparable_language`; empty if it is unknown. Only Python is
            parsed. In other languages, all words of the cell count as assigned.

    Raises:
        ValueError: not exactly one code cell has the tag. The message is a predicate of the notebook.
    """
    if not tagged:
        raise ValueError(f"has no cell with the tag `{TAG}`: add the tag to the cell that assigns the parameters")
    if len(tagged) > 1:
        raise ValueError(f"has {len(tagged)} cells with the tag `{TAG}`: leave the tag on one of them")
    (source,) = tagged
    if source is None:
        raise ValueError(f"has the tag `{TAG}` on a cell without code: move it to the cell that assigns the parameters")
    names = _python_names(source) if language == _PYTHON else None
    if names is None:
        names = frozenset(_words(source))
    return [name for name in parameters if _normalized(name) not in names], names


def _python_names(source: str) -> frozenset[str] | None:
    """Return the names that Python code assigns; None if the code cannot be parsed."""
    first, _, rest = source.lstrip().partition("\n")
    if first.startswith("%%"):
        if not _TRANSPARENT_MAGIC.fullmatch(first):
            return frozenset()  # the cell is a shell script, a file or the like, and assigns no variable
        source = rest
    tree = _parsed(source)
    if tree is None:
        for pattern, replacement in _IPYTHON:
            source = pattern.sub(replacement, source)
        tree = _parsed(source)
    return frozenset(_assigned(tree)) if tree is not None else None


def _parsed(source: str) -> ast.Module | None:
    if len(source) > _LONGEST_PARSED:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns about invalid escape sequences
            return ast.parse(source)
    except (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError):
        return None


def _assigned(tree: ast.Module) -> Iterator[str]:
    """Yield the global variables that a module assigns."""
    remaining: list[ast.AST] = [tree]
    while remaining:
        match remaining.pop():
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Lambda():
                continue  # their variables are local
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                continue
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case node:
                remaining += ast.iter_child_nodes(node)


def _words(source: str) -> Iterator[str]:
    """Yield the words of code in any language, without lines that are comments."""
    for line in source.splitlines():
        if not _COMMENT.match(line):
            for word in _WORD.findall(_normalized(line)):
                yield word
                yield from word.split(".")


def _normalized(name: str) -> str:
    """Return a name in the form in which Python compares names."""
    return unicodedata.normalize("NFKC", name)
