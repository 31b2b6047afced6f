"""Reads a metric from a YAML file."""

from __future__ import annotations

from typing import Any

import yaml

from toolbox.ground.model import yaml_scalars
from toolbox.judges.metrics import DocumentSource

# PyYAML raises YAMLError for invalid YAML, and the other errors for invalid values such as `!!int ""`.
_FAULTS = (yaml.YAMLError, ValueError, ArithmeticError, LookupError, AttributeError, TypeError, RecursionError)


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, for which a number that a person would read as another number is text."""

    def number(self, node: yaml.ScalarNode) -> object:
        """Construct a number, or the text of an ambiguous one."""
        if yaml_scalars.is_other_number(node.value):
            return node.value
        is_int = node.tag.endswith(":int")
        return self.construct_yaml_int(node) if is_int else self.construct_yaml_float(node)


yaml_scalars.read_exponents(_Loader)
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.number)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.number)


class Source(DocumentSource):
    """The YAML file, and the path of the number in it. `1:30` and `0123`, which YAML reads as 90 and 83, are text."""

    def parse(self, content: bytes) -> Any:
        """Return the document; raise ValueError if it is not YAML."""
        try:  # libyaml is faster, but crashes the process on deeply nested lists
            return yaml.load(content, Loader=_Loader)  # noqa: S506  # a safe loader
        except _FAULTS as error:
            reason = " ".join(str(error).split())  # the message of PyYAML has several lines
            raise ValueError(f"{self.file} is not YAML: {reason}") from None
