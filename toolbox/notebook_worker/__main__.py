"""The command line of the worker: `python3 PATH_OF_THIS_FOLDER SETTINGS.json`."""

import runpy
import sys
import types
from pathlib import Path

if sys.version_info < (3, 10):  # noqa: UP036 - a target may have an older Python
    sys.exit(f"notebook_worker: this is Python {sys.version.split()[0]}; the worker needs Python 3.10 or later")
if not __package__:  # started by its path, so Python does not yet treat this folder as a package
    FOLDER = Path(__file__).absolute().parent
    # The Python of the target may contain another Topgallant, whose modules this package must not import.
    toolbox = sys.modules["toolbox"] = types.ModuleType("toolbox")
    toolbox.__path__ = [str(FOLDER.parent)]
    runpy.run_module(f"toolbox.{FOLDER.name}", run_name="__main__", alter_sys=True)
else:
    from .worker_run import main

    sys.exit(main(sys.argv[1:]))
