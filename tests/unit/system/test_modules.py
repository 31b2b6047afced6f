"""Python files that are found by their place."""

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolbox.system import modules


@pytest.fixture
def name(request: pytest.FixtureRequest) -> Iterator[str]:
    """A module name of the test's own, which is free again afterwards."""
    found = f"_loaded_by_{request.node.name}"
    yield found
    sys.modules.pop(found, None)


def test_a_file_becomes_a_module_of_the_name_given(tmp_path: Path, name: str) -> None:
    (tmp_path / "with-dash.py").write_text('"""What it is."""\nVALUE = __name__\n')
    module = modules.load(name, tmp_path / "with-dash.py")
    assert (module.__name__, module.VALUE) == (name, name)
    assert module.__doc__ == "What it is."
    assert sys.modules[name] is module


@pytest.mark.parametrize(
    ("source", "error"),
    [("1 +", SyntaxError), ("raise KeyError('x')", KeyError), ("raise SystemExit(3)", SystemExit)],
)
def test_what_its_code_raises_comes_through_and_no_half_module_is_left(
    tmp_path: Path, name: str, source: str, error: type[BaseException]
) -> None:
    (tmp_path / "broken.py").write_text(source)
    with pytest.raises(error):
        modules.load(name, tmp_path / "broken.py")
    assert name not in sys.modules


@pytest.mark.parametrize("file", ["missing.py", "notes.txt"])
def test_what_is_no_python_file_is_an_import_error(tmp_path: Path, name: str, file: str) -> None:
    (tmp_path / "notes.txt").write_text("text")
    with pytest.raises((ImportError, FileNotFoundError), match=file):
        modules.load(name, tmp_path / file)
    assert name not in sys.modules


def test_what_is_imported_for_good_is_none_of_the_collectors_affairs(tmp_path: Path, name: str) -> None:
    (tmp_path / "many.py").write_text(
        "import gc\nWAS_ENABLED = gc.isenabled()\nKEPT = [[each] for each in range(1000)]\n"
    )
    before = gc.get_freeze_count()
    try:
        with modules.gc_frozen_imports():
            module = modules.load(name, tmp_path / "many.py")
        assert gc.get_freeze_count() >= before + 1000
    finally:
        gc.unfreeze()
    assert (module.WAS_ENABLED, gc.isenabled()) == (False, True)


def test_who_collects_no_garbage_does_not_after_an_import_that_failed(tmp_path: Path, name: str) -> None:
    (tmp_path / "broken.py").write_text("1 +")
    gc.disable()
    try:
        with pytest.raises(SyntaxError), modules.gc_frozen_imports():
            modules.load(name, tmp_path / "broken.py")
        assert not gc.isenabled()
    finally:
        gc.enable()
        gc.unfreeze()
