"""Finds the parameters of a test that have no effect on a notebook.

papermill writes the parameters of a test into a cell after the cell with the tag `parameters`. If the tagged cell does
not assign a parameter, for example because its name is misspelled, the notebook runs with its own values and passes.
The same happens if a later cell replaces or deletes the parameter. papermill only warns about the first of these
faults. `toolbox.features.notebooks` calls `faults` before the run, and the worker calls it with the language of the
kernel.
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

from toolbox.features.notebooks.worker.notebook_reading import SKIP_TAGS

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
            reason = f"replaces or deletes its parameter `{parameter}` before it reads it: remove that statement"
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
    """Return whether the first statement that mentions a name after the tagged cell replaces or deletes the variable.

    A name in a text counts as read, because pandas and others evaluate texts. So does a name in syntax of IPython.
    """
    word = re.compile(rf"\b{re.escape(name)}\b")
    for cell in later:
        is_executed = cell.source is not None and not cell.tags & {INJECTED_TAG, *SKIP_TAGS}
        if not is_executed or cell.source is None or not (words := word.findall(_normalized(cell.source))):
            continue
        code, tree = _python(cell.source)
        if tree is None or len(word.findall(_normalized(code))) < len(words):
            return False
        for statement in tree.body:
            if (is_replaced := _replaces(statement, name, word)) is not None:
                return is_replaced
    return False


def _replaces(statement: ast.stmt, name: str, word: re.Pattern[str]) -> bool | None:
    """Return whether a statement certainly replaces or deletes a variable before it reads it.

    Returns:
        None if the statement does not mention the variable.
    """
    match statement:
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return any((each.asname or each.name.partition(".")[0]) == name for each in names) or None
        case ast.FunctionDef(name=bound, args=arguments, decorator_list=decorators, returns=returns) if bound == name:
            executed = [arguments, *decorators, *([returns] if returns is not None else [])]
            return not _mentions_in(executed, name, word)
        case ast.ClassDef(name=bound) if bound == name:
            return not _mentions_in([statement], name, word)
    targets, reads = _parts(statement)
    if stored := _mentions_in(targets, name, word):
        is_stored = all(isinstance(getattr(node, "ctx", None), ast.Store | ast.Del) for node in stored)
        return is_stored and not _mentions_in(reads, name, word)
    return False if _mentions_in([statement], name, word) else None


def _parts(statement: ast.stmt) -> tuple[Sequence[ast.AST], Sequence[ast.AST]]:
    """Return what a statement certainly assigns or deletes, and the parts of it that are executed before."""
    match statement:
        case ast.Assign(targets=targets, value=value):
            return targets, [value]
        case ast.AnnAssign(target=target, annotation=annotation, value=ast.expr() as value):
            return [target], [annotation, value]
        case ast.Expr(value=ast.NamedExpr(target=target, value=value)):
            return [target], [value]
        case ast.For(target=target, iter=items) if _has_items(items):
            return [target], [items]
        case ast.With(items=[ast.withitem(context_expr=value, optional_vars=ast.expr() as target), *_]):
            return [target], [value]
        case ast.Delete(targets=targets):
            return targets, []
    return [], []


def _has_items(items: ast.expr) -> bool:
    """Return whether a loop over these items certainly has a first item."""
    match items:
        case ast.List(elts=[first, *_]) | ast.Tuple(elts=[first, *_]) | ast.Set(elts=[first, *_]):
            return not isinstance(first, ast.Starred)
        case ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=int(stop))]):
            return stop > 0
        case ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=int(start)), ast.Constant(value=int(stop))]):
            return start < stop
    return False


def _mentions_in(parts: Iterable[ast.AST], name: str, word: re.Pattern[str]) -> list[ast.AST]:
    return [node for part in parts for node in ast.walk(part) if _mentions(node, name, word)]


def _mentions(node: ast.AST, name: str, word: re.Pattern[str]) -> bool:
    match node:
        case ast.Name(id=text):
            return text == name
        case ast.Constant(value=str(text)):
            return word.search(text) is not None
    return False


def _python_names(source: str) -> frozenset[str] | None:
    """Return the names that Python code assigns; None if the code cannot be parsed."""
    _, tree = _python(source)
    return frozenset(_assigned(tree)) if tree is not None else None


def _python(source: str) -> tuple[str, ast.Module | None]:
    """Return the Python code of a cell without syntax of IPython, and its tree; None if it cannot be parsed."""
    first, _, rest = source.lstrip().partition("\n")
    if first.startswith("%%"):
        # Under another magic, the cell is a shell script, a file or the like, and assigns no variable.
        source = rest if _TRANSPARENT_MAGIC.fullmatch(first) else ""
    tree = _parsed(source)
    if tree is None and len(source) <= _LONGEST_PARSED:
        for pattern, replacement in _IPYTHON:
            source = pattern.sub(replacement, source)
        tree = _parsed(source)
    return source, tree


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
