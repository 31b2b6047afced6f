"""The package can be sent to a target alone: it imports only the standard library and two protocols."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolbox.system import places

PACKAGE = places.builtin_root() / "toolbox/inference_client"
LIBRARIES = {"fmaas_client.py": {"grpc"}, "openai_client.py": {"httpx"}, "http_transport.py": {"h11", "httpx"}}
PROTOBUF = {"fmaas_messages.py", "generation_pb2.py"}


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module).split(".")[0]


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.name)
def test_a_module_imports_only_what_a_target_has(path: Path) -> None:
    others = set(imported(path)) - set(sys.stdlib_module_names)
    assert others <= LIBRARIES.get(path.name, set()) | ({"google"} if path.name in PROTOBUF else set())
