"""The settings of the notebook worker, which a run writes to `src/settings.json` of an attempt.

`toolbox/features/notebooks/` validates the configuration and makes the settings. The worker only converts the JSON to
these classes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Runtime:
    """What is tested.

    Args:
        kernel: the name of a Jupyter kernel that exists on the target; None for a kernel of the environment that is
            made from `requirements`. Without `requirements`, None stands for a kernel of `python`, or for the default
            kernel of a Jupyter server.
        requirements: the lines of a requirements file; None if no environment is made.
        python: the Python interpreter from which the environment is made. Without `requirements`, it is the Python of
            the runtime.
    """

    name: str
    kernel: str | None = None
    requirements: tuple[str, ...] | None = None
    python: str = "python3"


@dataclass(frozen=True)
class Limits:
    """What the tests may use.

    Args:
        cpus: the number of processors for a kernel or a check; None for all.
        memory_bytes: the memory for a kernel or a check; None if the worker sets no limit.
        output_bytes: the size of all outputs of a notebook, or of a check.
    """

    cpus: int | None = None
    memory_bytes: int | None = None
    output_bytes: int = 20 * 2**20


@dataclass(frozen=True)
class CheckSettings:
    """A shell check or a Python check.

    Args:
        file: the path of the file, relative to `src/`. Its ending, `.sh` or `.py`, tells which kind it is.
        timeout: the time limit in seconds.
        skip: why the check does not apply. The check is skipped with this reason. None to run the check.
    """

    name: str
    file: str
    timeout: float = 60.0
    skip: str | None = None


@dataclass(frozen=True)
class NotebookSettings:
    """A notebook of the runtime.

    Args:
        file: the path of the notebook, relative to `src/`. The kernel starts in a copy of its directory.
        parameters: the values for the cell with the tag `parameters`.
        cell_timeout: the time limit of each cell in seconds.
        timeout: the time limit of the notebook in seconds.
        manual: what a person must do first. The notebook is skipped with this reason. None to execute the notebook.
        compare_outputs: whether the outputs of all cells must equal the outputs in the file. If not, only cells with
            the tag `nbval-check-output` are compared.
        ignore: pairs of a regular expression and a replacement, applied to both outputs before they are compared.
    """

    name: str
    file: str
    parameters: dict[str, Any] = field(default_factory=dict)
    cell_timeout: float = 600.0
    timeout: float = 1800.0
    manual: str | None = None
    compare_outputs: bool = False
    ignore: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Settings:
    """The settings of one execution of the worker.

    Args:
        promises: what the runtime and the machine promise. Checks compare the promises with what they find. Each check
            documents the keys that it reads.
        environments: the directory of the cached environments on the target.
        environment_timeout: the time limit for making the environments, in seconds.
        keep_days: how long an environment is kept after its last use.
        sample_seconds: the interval between two samples of the resource use of a kernel.
        uses_server: whether the kernels run on a Jupyter server, whose address and token are in the environment.
    """

    runtime: Runtime
    limits: Limits
    checks: tuple[CheckSettings, ...] = ()
    notebooks: tuple[NotebookSettings, ...] = ()
    promises: dict[str, Any] = field(default_factory=dict)
    environments: str = "~/.cache/topgallant/environments"
    environment_timeout: float = 1800.0
    keep_days: float = 30.0
    sample_seconds: float = 0.2
    uses_server: bool = False

    @classmethod
    def from_json(cls, document: Any) -> Settings:
        """Return settings that a run has written.

        Raises:
            ValueError: the document is not such settings.
        """
        try:
            runtime, limits = document["runtime"], document.get("limits", {})
            requirements = runtime.get("requirements")
            notebooks = [
                {**notebook, "ignore": tuple((old, new) for old, new in notebook.get("ignore", ()))}
                for notebook in document.get("notebooks", ())
            ]
            return cls(
                **{
                    **document,
                    "runtime": Runtime(
                        **{**runtime, "requirements": tuple(requirements) if requirements is not None else None}
                    ),
                    "limits": Limits(**limits),
                    "checks": tuple(CheckSettings(**check) for check in document.get("checks", ())),
                    "notebooks": tuple(NotebookSettings(**notebook) for notebook in notebooks),
                }
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"the settings of the worker are invalid: {error!r}") from None
