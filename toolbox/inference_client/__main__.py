"""The command line of the worker: `python3 -m inference_client SETTINGS.json`, or with the path of this folder."""

import runpy
import sys
from pathlib import Path

if not __package__:  # started by its path: Python does not know yet that this folder is a package
    FOLDER = Path(__file__).absolute().parent
    sys.path[0] = str(FOLDER.parent)
    runpy.run_module(FOLDER.name, run_name="__main__", alter_sys=True)
else:
    from .worker import main

    sys.exit(main(sys.argv[1:]))
