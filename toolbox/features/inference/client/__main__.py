"""The command line of the worker: `python3 PATH_OF_THIS_FOLDER SETTINGS.json`, or `python3 -m` with its name."""

import runpy
import sys
import types
from pathlib import Path

if not __package__:  # started by its path: Python does not know yet that this folder is a package
    FOLDER = Path(__file__).absolute().parent
    TOP = next(folder for folder in FOLDER.parents if folder.name == "toolbox")
    # The Python of the target may contain another Topgallant, whose modules this package must not import.
    toolbox = sys.modules[TOP.name] = types.ModuleType(TOP.name)
    toolbox.__path__ = [str(TOP)]
    del sys.path[0]
    runpy.run_module(".".join(FOLDER.relative_to(TOP.parent).parts), run_name="__main__", alter_sys=True)
else:
    from .worker import main

    sys.exit(main(sys.argv[1:]))
