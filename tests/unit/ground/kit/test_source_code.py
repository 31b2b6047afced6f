"""Source code that was read can be imported where it is not installed, and replaces code that is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from toolbox.ground import kit
from toolbox.ground.kit import source_code, streams


def test_a_package_is_read_with_its_parents() -> None:
    sources = source_code.read(kit)
    assert (sources["toolbox"], sources["toolbox.ground.kit"]) == ("", "")
    assert sources["toolbox.ground.kit.streams"] == Path(streams.__file__).read_text()


@pytest.mark.parametrize("module", [kit, streams])
def test_the_sources_are_preferred_to_an_installed_package(tmp_path: Path, module: ModuleType) -> None:
    (tmp_path / "toolbox/ground/kit").mkdir(parents=True)
    for file in ("toolbox/__init__.py", "toolbox/ground/kit/__init__.py", "toolbox/ground/kit/streams.py"):
        (tmp_path / file).write_text("raise SystemExit('this file must not be imported')\n")
    program = source_code.program("toolbox.ground.kit.streams", module) + "streams.write_all(1, b'written')\n"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, check=False)
    assert (done.stdout, done.stderr) == (b"written", b"")
