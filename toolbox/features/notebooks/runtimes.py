"""The contract of the block `runtimes` of the project `notebooks`: what is tested, and with which notebooks."""

from __future__ import annotations

import json
import re
from typing import Annotated, ClassVar, Final, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    RootModel,
    model_validator,
)

from toolbox.ground.model.names import is_name
from toolbox.ground.model.quantities import Seconds
from toolbox.ground.model.secrets import Secret

_PARAMETER: Final = re.compile(r"[^\W\d][\w.]{0,254}|\.[^\W\d][\w.]{0,254}")  # in R, names may contain dots
GPU_DEVICE: Final = "cuda"
"""The value of `promises.device` for a runtime that needs a GPU."""


def _as_entry(value: object) -> object:
    return {"file": value} if isinstance(value, str) else value


def _as_substitution(value: object) -> object:
    return {"regex": value} if isinstance(value, str) else value


def _is_expression(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return text


def _is_public(value: object) -> object:
    if isinstance(value, Secret):
        raise ValueError("a secret cannot be here, because executed notebooks contain it: use `matrix.workload.env`")  # noqa: TRY004  # pydantic reports only value errors
    return value


def is_json(value: JsonValue) -> JsonValue:
    """Return a value that can be written as JSON. Raise ValueError for NaN and infinity."""
    json.dumps(value, allow_nan=False)
    return value


def _is_parameter(name: str) -> str:
    if not _PARAMETER.fullmatch(name):
        raise ValueError("the name of a parameter is the name of a variable of the notebook")
    return name


class Strict(BaseModel):
    """A mapping that refuses unknown fields and converts no types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


Name = Annotated[str, AfterValidator(is_name)]
Text = Annotated[str, Field(min_length=1)]
Reasons = dict[Text, Text]
Json = Annotated[JsonValue, BeforeValidator(_is_public), AfterValidator(is_json)]


class Substitution(Strict):
    """A part of outputs that varies. Before outputs are compared, each match of `regex` becomes `replace`."""

    regex: Annotated[str, AfterValidator(_is_expression)]
    replace: str = ""


class Notebook(Strict):
    """A notebook, or several notebooks with the same settings. A text stands for a notebook with only `file`.

    Args:
        file: the path or a pattern such as `examples/*.ipynb`, relative to the directory that contains `config/`.
        name: the name of the test; by default the name of the file without its ending.
        parameters: the values for the cell with the tag `parameters`.
        cell_timeout: the time limit of each cell in seconds.
        timeout: the time limit of the notebook in seconds.
        manual: what a person must do before the notebook can run. The notebook is skipped with this reason.
        compare_outputs: whether the outputs must equal those in the file.
        cell_metrics: whether the time and the memory of each cell are metrics, not only those of the notebook.
        ignore: the parts of outputs that may differ. A text stands for a regular expression whose matches are removed.
    """

    file: Text
    name: Name | None = None
    parameters: dict[Annotated[str, AfterValidator(_is_parameter)], Json] = {}
    cell_timeout: Seconds = 600
    timeout: Seconds = 1800
    manual: Text | None = None
    compare_outputs: bool = False
    cell_metrics: bool = False
    ignore: list[Annotated[Substitution, BeforeValidator(_as_substitution)]] = []

    @model_validator(mode="after")
    def _cells_fit(self) -> Self:
        if "cell_timeout" in self.model_fields_set and self.cell_timeout > self.timeout:
            raise ValueError(f"`cell_timeout` {self.cell_timeout:g} s is longer than `timeout` {self.timeout:g} s")
        return self


class Runtime(Strict):
    """A runtime: an image, a Jupyter kernel (also of an image), or requirements from which an environment is made.

    Args:
        image: the container image, for Kubernetes and JupyterHub.
        kernel: the name of a Jupyter kernel that exists in the image or on the machine.
        requirements: the lines of a requirements file, or its path, relative to the directory that contains `config/`.
        python: the Python interpreter from which the environment is made; None for `notebooks.python`.
        promises: what the runtime promises. The checks compare the promises with what they find.
        owner: the person or team that is responsible for the runtime.
        without_checks: the checks that do not apply to the runtime, each with the reason.
    """

    image: Text | None = None
    kernel: Annotated[str, AfterValidator(is_name)] | None = None
    requirements: list[Text] | Text | None = None
    python: Text | None = None
    notebooks: list[Annotated[Notebook, BeforeValidator(_as_entry)]] = []
    promises: dict[Text, Json] = {}
    owner: Text | None = None
    without_checks: Reasons = {}

    @model_validator(mode="after")
    def _is_one_kind(self) -> Self:
        if self.requirements is None and not (self.image or self.kernel):
            raise ValueError("a runtime needs an `image`, a `kernel` or `requirements`")
        if self.requirements is not None and (self.image or self.kernel):
            other = "image" if self.image else "kernel"
            raise ValueError(f"`requirements` make an environment with a kernel of its own: remove `{other}`")
        if self.python is not None and self.requirements is None:
            raise ValueError("`python` is the interpreter of an environment: it needs `requirements`")
        return self

    @property
    def needs_gpu(self) -> bool:
        """Whether the runtime promises to compute on a GPU."""
        return self.promises.get("device") == GPU_DEVICE


class Runtimes(RootModel[Annotated[dict[Name, Runtime], Field(min_length=1)]]):
    """The block `runtimes`."""

    is_open: ClassVar[bool] = True
