"""A wheel contains the messages that are generated from the gRPC definition."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

from tests.functional.test_build import build
from tests.functional.test_build import source as source  # noqa: PLC0414  # re-exports the fixture
from tests.functional.test_makefile import PROTO, finish, installed
from tests.functional.test_makefile import checkout as checkout  # noqa: PLC0414
from toolbox.ground.system import places

MESSAGES = "toolbox/features/inference/client/fmaas/generation_pb2.py"


def test_a_wheel_contains_the_generated_messages(source: Path, tmp_path: Path) -> None:
    assert not (source / MESSAGES).exists()
    with zipfile.ZipFile(build("wheel", source, tmp_path / "wheel")) as wheel:
        assert {MESSAGES, f"{MESSAGES}i"} <= set(wheel.namelist())
        assert wheel.read(MESSAGES) == (places.builtin_root() / MESSAGES).read_bytes()


def test_a_change_of_the_definition_is_installed(checkout: Path) -> None:
    finish(checkout, ".installed", ".installed-dev")
    later = (checkout / ".venv/.installed").stat().st_mtime + 10
    os.utime(checkout / PROTO, (later, later))
    assert (len(installed(checkout, "demo")), len(installed(checkout, "test"))) == (1, 1)
