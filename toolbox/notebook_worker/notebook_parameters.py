"""Finds the parameters of a test that have no effect on a notebook.

papermill writes the parameters of a test into a cell after the cell with the tag `parameters`. If the tagged cell does
not assign a parameter, for example because its name is misspelled, the notebook runs with its own values and passes.
The same happens if a later cell assigns the parameter again. papermill only warns about the first of these faults.
`toolbox.notebooks` calls `faults` before the run, and the worker calls it with the language of the kernel.
"""

from __future__ import annotations

import ast
import difflib
import re
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from toolbox.notebook_worker.notebook_reading import SKIP_TAGS

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
    (re.compile(r"^([^\S\n]*)%time[^\S\n]+(?=\S)", re.MULTILINE), r"\1"),
    (re.compile(r"^([^\S\n]*)(?:[%!?].*|.*\?)[^\S\n]*$", re.MULTILINE), r"\1pass"),
    (re.compile(r"^([^#\n=]*=[^\S\n]*)[%!].*$", re.MULTILINE), r"\1None"),
)


@dataclass(frozen=True)
class ParameterCell:
    """A cell of a notebook.

    Args:
        source: the code; None for a cell without code.
    """

    source: str | None
    tags: frozenset[str]


@dataclass(frozen=True)
class ParameterFault:
    """Why a parameter has no effect.

    Args:
        parameter: the name of the parameter; empty if the fault concerns all parameters.
        reason: a predicate whose subject is the notebook.
    """

    parameter: str
    reason: str


def faults(parameters: Iterable[str], cells: Sequence[ParameterCell], language: str) -> list[ParameterFault]:
    """Return the parameters that have no effect.

    Args:
        cells: all cells of the notebook.
        language: the language of the notebook as in `comparable_language`; empty if it is unknown. Only Python is
            parsed. In other languages, all words of the tagged cell count as assigned.
    """
    positions = [position for position, cell in enumerate(cells) if TAG in cell.tags]
    source = cells[positions[0]].source if len(positions) == 1 else None
    if source is None:
        return [ParameterFault("", _tag_fault(len(positions)))]
    names = _python_names(source) if language == _PYTHON else None
    known = frozenset(_words(source)) if names is None else names
    found = []
    for parameter in parameters:
        if _normalized(parameter) not in known:
            found.append(ParameterFault(parameter, f"has no parameter `{parameter}`: {_hint(parameter, known)}"))
        elif names is not None and _is_overwritten(_normalized(parameter), cells[positions[0] + 1 :]):
            reason = f"assigns its parameter `{parameter}` again before it reads it: remove the second assignment"
            found.append(ParameterFault(parameter, reason))
    return found


def _tag_fault(tagged: int) -> str:
    """Return what is wrong with the tag of the parameters, which must be on one code cell."""
    if not tagged:
        return f"has no cell with the tag `{TAG}`: add the tag to the cell that assigns the parameters"
    if tagged > 1:
        return f"has {tagged} cells with the tag `{TAG}`: leave the tag on one of them"
    return f"has the tag `{TAG}` on a cell without code: move the tag to the cell that assigns the parameters"


def _hint(parameter: str, names: Iterable[str]) -> str:
    if similar := difflib.get_close_matches(parameter, sorted(names), n=1, cutoff=0.5):
        return f"did you mean {similar[0]}?"
    return "its cell with the tag does not assign it"


def _is_overwritten(name: str, later: Sequence[ParameterCell]) -> bool:
    """Return whether the first statement that mentions a name after the tagged cell is an assignment to the name.

    A name in a text counts as read, because pandas and others evaluate texts.
    """
    word = re.compile(rf"\b{re.escape(name)}\b")
    for cell in later:
        is_executed = cell.source is not None and not cell.tags & {INJECTED_TAG, *SKIP_TAGS}
        if not is_executed or cell.source is None or not word.search(_normalized(cell.source)):
            continue
        tree = _parsed(cell.source)
        if tree is None:
            return False
        for statement in tree.body:
            mentions = [node for node in ast.walk(statement) if _mentions(node, name, word)]
            if mentions:
                is_assignment = isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None
                return is_assignment and all(isinstance(getattr(node, "ctx", None), ast.Store) for node in mentions)
    return False


def _mentions(node: ast.AST, name: str, word: re.Pattern[str]) -> bool:
    match node:
        case ast.Name(id=text):
            return text == name
        case ast.Constant(value=str(text)):
            return word.search(text) is not None
    return False


def _python_names(source: str) -> frozenset[str] | None:
    """Return the names that Python code assigns; None if the code cannot be parsed."""
    first, _, rest = source.lstrip().partition("\n")
    if first.startswith("%%"):
        if not _TRANSPARENT_MAGIC.fullmatch(first):
            return frozenset()  # the cell is a shell script, a file or the like, and assigns no variable
        source = rest
    tree = _parsed(source)
    if tree is None and len(source) <= _LONGEST_PARSED:
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
