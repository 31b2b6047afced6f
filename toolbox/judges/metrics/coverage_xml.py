"""Reads the coverage of tests from a Cobertura XML file, in percent.

coverage.py (`coverage xml`, `pytest --cov-report=xml`), gcovr, JaCoCo's and Go's converters write this format. The
counts of the root element are used if they exist, because the rates are rounded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal
from xml.etree.ElementTree import ParseError

from pydantic import BaseModel, ConfigDict, Field

from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.nearest import did_you_mean
from toolbox.ground.model.text import truncate
from toolbox.records.runs.evidence_files import RelativeFile, readable

_LARGEST: Final = 1 << 27  # bytes
_CHUNK: Final = 1 << 20  # the parser reads an unfinished attribute again with each chunk
_MAX_PACKAGES: Final = 100_000
_MAX_SUGGESTED: Final = 1000  # packages that are compared with an unknown name
_DEEPEST: Final = 100
_COUNTS: Final = {"line": ("lines-covered", "lines-valid"), "branch": ("branches-covered", "branches-valid")}


class Source(BaseModel):
    """The coverage file.

    Args:
        rate: whether to measure the lines or the branches that were executed.
        package: the name of the package to measure; None for all packages together.
    """

    model_config = ConfigDict(extra="forbid")

    file: RelativeFile
    rate: Literal["line", "branch"] = "line"
    package: str | None = Field(default=None, min_length=1)

    def read(self, directory: Path) -> float:
        """Return the coverage in percent.

        Raises:
            ValueError: the file cannot be read, is not a coverage file, or has no such package.
        """
        target = self._parse(directory)
        if self.package is None:
            return self._percent(target.root, f"{self.file}", may_have_counts=True)
        if (attributes := target.packages.get(self.package)) is None:
            names = [truncate(clean(name)) for name in islice(target.packages, _MAX_SUGGESTED)]
            hint = did_you_mean(self.package, names, label="packages")
            raise ValueError(f"{self.file} has no package `{self.package}`: {hint}")
        return self._percent(attributes, f"the package `{self.package}` of {self.file}")

    def _percent(self, attributes: Mapping[str, str], what: str, *, may_have_counts: bool = False) -> float:
        covered, valid = (_number(attributes.get(name)) for name in _COUNTS[self.rate])
        parts = "lines" if self.rate == "line" else "branches"
        if may_have_counts and covered is not None and valid:
            if covered > valid:
                raise ValueError(f"{what} counts {covered:g} executed {parts}, but only {valid:g} {parts}")
            return 100.0 * covered / valid
        rate = _number(attributes.get(f"{self.rate}-rate"))
        if rate is None or rate > 1 or (may_have_counts and valid == 0):
            raise ValueError(f"{what} does not say which part of its {parts} ran")
        return 100.0 * rate

    def _parse(self, directory: Path) -> _Target:
        from defusedxml import DefusedXmlException
        from defusedxml.ElementTree import XMLParser

        target = _Target()
        # gcovr writes a reference to the DTD, which the parser does not load.
        parser = XMLParser(target=target, forbid_dtd=False, forbid_entities=True, forbid_external=True)
        parser.parser.StartDoctypeDeclHandler = self._refuse_declarations
        try:
            with readable(directory, self.file) as path:
                if path.stat().st_size > _LARGEST:
                    raise ValueError(f"{self.file} has more than {_LARGEST} bytes")
                with path.open("rb") as stream:
                    while chunk := stream.read(_CHUNK):
                        parser.feed(chunk)
            parser.close()
        except DefusedXmlException:
            raise ValueError(f"{self.file} defines an entity, which a coverage file must not do") from None
        except ParseError as error:
            raise ValueError(f"{self.file} is not XML: {error}") from None
        except LookupError as error:
            raise ValueError(f"{self.file} has an unknown encoding: {truncate(clean(str(error)))}") from None
        return target

    def _refuse_declarations(
        self, _name: str, _system: str | None, _public: str | None, has_declarations: bool
    ) -> None:
        """Refuse a DTD inside the file, because each element would get the attributes that the DTD declares."""
        if has_declarations:
            raise ValueError(f"{self.file} has declarations in its DTD, which a coverage file must not have")


class _Target:
    """Receives the events of the parser, and keeps the attributes of the root and of the packages."""

    def __init__(self) -> None:
        self.root: dict[str, str] = {}
        self.packages: dict[str, dict[str, str]] = {}
        self._depth = 0

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Handle the start of an element."""
        if not self._depth:
            if tag != "coverage":
                raise ValueError(f"the file is not a Cobertura file: its root is <{truncate(clean(tag))}>")
            self.root = dict(attributes)
        self._depth += 1
        if self._depth > _DEEPEST or len(self.packages) > _MAX_PACKAGES:
            raise ValueError("the coverage file is nested too deeply, or has too many packages")
        if tag == "package":
            self.packages.setdefault(attributes.get("name", ""), dict(attributes))

    def end(self, _: str) -> None:
        """Handle the end of an element."""
        self._depth -= 1

    def close(self) -> Any:
        """Handle the end of the document."""


def _number(text: str | None) -> float | None:
    """Return a number that is finite and not negative; None for any other text."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
