"""Python files are imported by their paths."""

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolbox.ground.system import modules


@pytest.fixture
def name(request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield an unused module name, which is removed from `sys.modules` afterwards."""
    found = f"_loaded_by_{request.node.name}"
    yield found
    sys.modules.pop(found, None)


def test_a_file_becomes_a_module_with_the_given_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "with-dash.py").write_text('"""What it is."""\nVALUE = __name__\n')
    module = modules.load(name, tmp_path / "with-dash.py")
    assert (module.__name__, module.VALUE) == (name, name)
    assert module.__doc__ == "What it is."
    assert sys.modules[name] is module


@pytest.mark.parametrize(
    ("source", "error"),
    [("1 +", SyntaxError), ("raise KeyError('x')", KeyError), ("raise SystemExit(3)", SystemExit)],
)
def test_an_exception_of_the_code_is_raised_and_the_module_is_removed(
    tmp_path: Path, name: str, source: str, error: type[BaseException]
) -> None:
    (tmp_path / "broken.py").write_text(source)
    with pytest.raises(error):
        modules.load(name, tmp_path / "broken.py")
    assert name not in sys.modules


@pytest.mark.parametrize("file", ["missing.py", "notes.txt"])
def test_a_file_that_is_not_python_is_an_import_error(tmp_path: Path, name: str, file: str) -> None:
    (tmp_path / "notes.txt").write_text("text")
    with pytest.raises((ImportError, FileNotFoundError), match=file):
        modules.load(name, tmp_path / file)
    assert name not in sys.modules


def test_frozen_imports_are_excluded_from_garbage_collection(tmp_path: Path, name: str) -> None:
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


def test_a_failed_import_leaves_garbage_collection_disabled(tmp_path: Path, name: str) -> None:
    (tmp_path / "broken.py").write_text("1 +")
    gc.disable()
    try:
        with pytest.raises(SyntaxError), modules.gc_frozen_imports():
            modules.load(name, tmp_path / "broken.py")
        assert not gc.isenabled()
    finally:
        gc.enable()
        gc.unfreeze()
