"""Makes the environment variables of the kernels and checks of a runtime."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

# By default, numeric libraries start a thread per processor of the machine, even if the program may use fewer.
_THREADS: Final = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_MAX_THREADS",
    "NUMEXPR_NUM_THREADS",
    "POLARS_MAX_THREADS",
    "RAYON_NUM_THREADS",
    "JULIA_NUM_THREADS",
    "GOMAXPROCS",
)
_FOREIGN: Final = ("PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")
_PRIVATE: Final = {  # so that the startup files and the configuration of the user have no influence
    "IPYTHONDIR": "ipython",
    "JUPYTER_CONFIG_DIR": "jupyter_config",
    "JUPYTER_RUNTIME_DIR": "jupyter_runtime",
}


def make(
    inherited: Mapping[str, str], *, private: Path, environment: Path | None, threads: int | None
) -> dict[str, str]:
    """Return the variables of a program.

    Args:
        inherited: the variables of the worker.
        private: a directory for files of Jupyter and IPython.
        environment: the virtual environment of the runtime; None if the runtime has none.
        threads: the number of threads of numeric libraries; None for the default of each library.
    """
    removed = _FOREIGN if environment is not None else ("PYTHONSTARTUP",)
    variables = {name: value for name, value in inherited.items() if name not in removed}
    variables |= {name: str(private / folder) for name, folder in _PRIVATE.items()}
    if environment is not None:
        variables["VIRTUAL_ENV"] = str(environment)
        variables["PATH"] = os.pathsep.join(filter(None, (str(environment / "bin"), inherited.get("PATH", os.defpath))))
    if threads is not None:
        variables |= dict.fromkeys(_THREADS, str(threads))
    return variables
