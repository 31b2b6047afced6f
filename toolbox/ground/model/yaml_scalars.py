"""The rules for unquoted YAML scalars: which are numbers, and which a person may have meant as text.

PyYAML reads YAML 1.1, in which `1:30` is 90, `0123` is 83, `on` is true, and `1e-4` is text. All YAML that people write
for Topgallant is read by loaders with `read_exponents`, and `ambiguous` finds the scalars that need a warning.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import yaml

from toolbox.ground.model.text import truncate

Key = str | int

_TAG: Final = "tag:yaml.org,2002:"
_FLOAT: Final = f"{_TAG}float"
_TYPES: Final = {f"{_TAG}{name}" for name in ("bool", "int", "float", "timestamp")}
_EXPONENT: Final = re.compile(
    r"[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)[eE][-+]?[0-9]+$|[-+]\.[0-9][0-9_]*$"  # as in YAML 1.2 and JSON
)
_LEADING_ZERO: Final = re.compile(r"[-+]?0[0-9_]")
_VERSION: Final = re.compile(r"[1-9][0-9]*\.[1-9]0")  # such as Python 3.10, which becomes 3.1
_VERSION_KEY: Final = re.compile(
    r"matrix\.axes|version|release|image|driver|runtime|python|cuda|torch|jax|java|ubuntu"
    r"|(?<![a-z])(?:tag|label|jdk|go)s?(?![a-z])",
    re.IGNORECASE,
)
_COMMIT: Final = re.compile(r"[0-9]+[eE][0-9]+")
_LONGEST: Final = 60  # characters of a text in a warning
_SHORTEST_COMMIT: Final = 7  # characters of an abbreviated commit of Git
_THOUSANDS: Final = re.compile(r"[-+]?[0-9]{1,3}(?:_[0-9]{3})+(?:\.[0-9]*)?")


@dataclass(frozen=True, slots=True)
class AmbiguousScalar:
    """An unquoted scalar whose text and value differ in their meaning.

    Args:
        keys: the path of the value, or of the value of the key if the scalar is a key.
        line, column: the position, from 1. The column counts from the beginning of the document.
    """

    text: str
    value: bool | int | float | dt.date
    keys: tuple[Key, ...]
    is_key: bool
    line: int
    column: int

    @property
    def is_other_number(self) -> bool:
        """Whether a person would read another number, as in `1:30` (90) and `0123` (83)."""
        return self.is_number and is_other_number(self.text)

    @property
    def is_number(self) -> bool:
        """Whether YAML reads a number. Where a text is needed, a number becomes another text than the written one."""
        return type(self.value) in (int, float)

    def __str__(self) -> str:
        """Return what is wrong, and the quoted form."""
        text = truncate(self.text, _LONGEST)
        if isinstance(self.value, dt.date):
            return f'`{text}` is read as a date: write "{text}" for the text'
        if len(self.text) > _LONGEST:
            return f'`{text}` is read as another number: write "{text}" for the text'
        value = str(self.value).lower() if isinstance(self.value, bool) else repr(self.value).replace("inf", ".inf")
        return f'`{text}` is read as {value}: write "{text}" for the text, or {value}'


def read_exponents(cls: Any) -> Any:
    """Make a loader or a dumper of PyYAML treat `1e-4` and `-.5` as numbers, as YAML 1.2 and JSON do. Return the class.

    A dumper then puts texts of this form between quotes.
    """
    cls.add_implicit_resolver(_FLOAT, _EXPONENT, list("-+.0123456789"))
    return cls


FastLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""PyYAML's safe loader on libyaml, if libyaml is there. libyaml does not limit the depth of a text."""


class Loader(yaml.SafeLoader):
    """PyYAML's safe loader for short texts from a command line or a comment. Unlike libyaml, it limits the depth."""


read_exponents(Loader)


def ambiguous_in(text: str) -> list[AmbiguousScalar]:
    """Return the ambiguous scalars of a text that `Loader` can read."""
    loader = Loader(text)
    return list(ambiguous(loader.get_single_node(), loader))


def is_ambiguous(text: str, tag: str, *, may_be_version: bool = True) -> bool:
    """Return whether a person may have meant something else with an unquoted scalar.

    A number whose text changes without another meaning is clear: `1.0`, `0.50`, `1e3`, `100_000`, `0x1F`. `3.10` may be
    a version, but `0.10` is nearly always a fraction.

    Args:
        tag: the type that PyYAML found.
        may_be_version: whether a number such as `3.10` stands where a version may stand.
    """
    kind = tag.removeprefix(_TAG)
    if kind == "bool":
        return text.lower() not in {"true", "false"}
    if kind in {"int", "float"}:
        is_commit = len(text) >= _SHORTEST_COMMIT and _COMMIT.fullmatch(text) is not None
        is_label = is_commit or (may_be_version and _VERSION.fullmatch(text) is not None)
        return is_label or is_other_number(text) or (kind == "float" and _is_too_large(text))
    return kind == "timestamp"


def is_other_number(text: str) -> bool:
    """Return whether YAML reads another number than a person would: base 60, octal, or joined digits as in `12_4`."""
    is_joined = "_" in text and _THOUSANDS.fullmatch(text) is None
    return ":" in text or _LEADING_ZERO.match(text) is not None or is_joined


def _is_too_large(text: str) -> bool:
    """Return whether a finite number becomes infinite, as `1e999` does."""
    return _EXPONENT.match(text) is not None and math.isinf(float(text.replace("_", "")))


def ambiguous(root: yaml.Node | None, loader: Any) -> Iterator[AmbiguousScalar]:
    """Yield the ambiguous scalars of a document, each once, although aliases put it at several places.

    Args:
        loader: a safe loader of PyYAML, which constructs the values of scalars.
    """
    seen: set[int] = set()
    stack: list[tuple[yaml.Node | None, tuple[Key, ...], bool]] = [(root, (), False)]
    while stack:
        node, keys, is_key = stack.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.ScalarNode):
            if _is_suspect(node, keys, is_key=is_key):
                yield _scalar(node, keys, loader, is_key=is_key)
        elif isinstance(node, yaml.SequenceNode):
            stack.extend((item, (*keys, index), False) for index, item in reversed(list(enumerate(node.value))))
        elif isinstance(node, yaml.MappingNode):
            for key, value in reversed(node.value):
                below = (*keys, _key(key, loader))
                stack += [(value, below, False), (key, below, True)]


def _is_suspect(node: yaml.ScalarNode, keys: tuple[Key, ...], *, is_key: bool) -> bool:
    if node.style or node.tag not in _TYPES:
        return False
    return is_ambiguous(node.value, node.tag, may_be_version=is_key or _may_be_version(keys))


def _may_be_version(keys: tuple[Key, ...]) -> bool:
    """Return whether a value may be a version by its place: `price: 2.50` is a number, `python: 3.10` a version.

    Items of lists may be labels of cells, whatever their key. A document that is one scalar has no key.
    """
    return not keys or type(keys[-1]) is int or _VERSION_KEY.search(".".join(map(str, keys))) is not None


def _scalar(node: yaml.ScalarNode, keys: tuple[Key, ...], loader: Any, *, is_key: bool) -> AmbiguousScalar:
    mark = node.start_mark
    return AmbiguousScalar(
        node.value, loader.construct_object(node), keys, is_key, line=mark.line + 1, column=mark.index + 1
    )


def _key(node: yaml.Node, loader: Any) -> Key:
    """Return the key of a path, as `toolbox.config.paths` finds it."""
    if not isinstance(node, yaml.ScalarNode):
        return ""
    key = loader.construct_object(node) if node.tag in _TYPES else node.value
    return key if type(key) is int else str(key)
