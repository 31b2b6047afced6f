"""Compares the time of a preset of 100 fields on a document of 900 lines with the method of TOPSAIL, jsonpath."""

from __future__ import annotations

import statistics
import sys
from typing import Any

import yaml
from jsonpath_ng.parser import parse
from measure import compare, seconds

from toolbox.config import document, presets

_LIMIT_SECONDS = 0.020
_BLOCKS, _FIELDS = 80, 10


def _text() -> str:
    lines = ["ci_presets:", "  names: null", "  hundred:"]
    lines += [f"    tests.block{index // _FIELDS}.field{index % _FIELDS}: {{value: {index}}}" for index in range(100)]
    lines.append("tests:")
    for block in range(_BLOCKS):
        lines.append(f"  block{block}:")
        lines += [f"    field{field}: value {field} of block {block}" for field in range(_FIELDS)]
    return "\n".join(lines)


def main() -> int:
    """Measure, and return 1 if the limit is exceeded."""
    text = _text()
    parsed = document.parse(text, source="bench.yaml")
    plain: dict[str, Any] = document.parse(text, source="bench.yaml").root

    def jsonpath() -> None:
        for path, value in plain["ci_presets"]["hundred"].items():
            expression = parse(path)
            expression.find(plain)
            expression.update(plain, value)

    times = [seconds(lambda: presets.apply(parsed, "hundred")) for _ in range(15)]
    applied = statistics.median(times)
    within = applied <= _LIMIT_SECONDS
    compare(
        f"a preset of 100 fields on {len(text.splitlines())} lines / jsonpath-ng, field by field",
        lambda: presets.apply(parsed, "hundred"),
        jsonpath,
        rounds=5,
    )
    print(
        f"  the preset takes {applied * 1e3:.2f} ms (at most {_LIMIT_SECONDS * 1e3:g} ms: {'yes' if within else 'NO'})"
    )
    compare(
        "reading the document with the line of each value / yaml.safe_load of the document",
        lambda: document.parse(text, source="bench.yaml"),
        lambda: yaml.safe_load(text),
        rounds=5,
    )
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
