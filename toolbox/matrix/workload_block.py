"""The model of the block `matrix.workload` of a configuration, with the fields that backends add to it."""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Final, Self, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PlainValidator,
    create_model,
    field_validator,
    model_validator,
)

from toolbox.ground.extensions import loading
from toolbox.ground.model.quantities import MAX_SECONDS, AnySeconds
from toolbox.ground.model.secrets import Secret

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_YAML: Final = (".yaml", ".yml")


def _word(value: object) -> str | int | float | bool | None:
    if isinstance(value, Secret):
        raise ValueError("every user of the machine can read a command: pass a secret in `env`")  # noqa: TRY004
    if value is not None and not isinstance(value, str | int | float | bool):
        raise ValueError("must be a string, a number, true, false or null")
    return value


def _word_or_secret(value: object) -> object:
    return value if isinstance(value, Secret) else _word(value)


def _variable(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise ValueError("the name of a variable consists of letters, digits and _, and does not begin with a digit")
    return name


def _files(files: object) -> object:
    """Return no files for a reference to the files of a cell, which only the configuration of a cell can resolve."""
    return {} if isinstance(files, str) and files.startswith("@") else files


def _inside(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or not path.parts or ".." in path.parts or not name.isprintable():
        raise ValueError("must be a relative path to a file, without `..` and control characters")
    return name


def _refuse_secrets(value: object) -> None:
    if isinstance(value, Secret):
        raise ValueError("a secret is never written to a file: pass the secret in `env`")  # noqa: TRY004
    if isinstance(value, Mapping | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            _refuse_secrets(item)


Text = Annotated[str, Field(min_length=1)]
Word = Annotated[str | int | float | bool | None, PlainValidator(_word)]
Inside = Annotated[str, AfterValidator(_inside)]


class WorkloadBlock(BaseModel):
    """The workload of a cell. Backends have further fields, which `complete` adds.

    Args:
        command: a list of arguments, or a command line for bash.
        env: environment variables; a value is text, a number, true, false, null or a secret.
        cwd: the working directory.
        files: local files or directories to send: a mapping from the path below `src/` to the local path, or before
            the cells are known a reference to such a mapping.
        write: files to generate: a mapping from the path below `src/` to the content. A value that is not text is
            written as JSON or YAML, depending on the ending of the path.
        collect: patterns of the files to fetch.
        log_bytes: how many bytes to keep from the start of stdout and of stderr. Of later output, only the end is kept.
        sample_seconds: the interval between two samples of the resource use; None for no sampling.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    command: Annotated[list[Word], Field(min_length=1)] | str
    env: dict[Annotated[str, AfterValidator(_variable)], Annotated[Any, AfterValidator(_word_or_secret)]] = {}
    cwd: Text | None = None
    files: Annotated[dict[Inside, Text], BeforeValidator(_files)] = {}
    write: dict[Inside, Any] = {}
    collect: list[Inside] = ["**"]
    log_bytes: int = Field(default=64 * 2**20, ge=4096)
    sample_seconds: AnySeconds | None = Field(default=None, ge=0.1, le=MAX_SECONDS)

    @classmethod
    def complete(cls) -> type[WorkloadBlock]:
        """Return the model with the fields of all backends. This imports all backends."""
        return _with_fields(tuple(target.workload_fields for target in loading.extending_targets()))

    @property
    def backend_fields(self) -> dict[str, Any]:
        """The fields that the configuration sets and that belong to backends, by name."""
        return {name: getattr(self, name) for name in self.model_fields_set - WorkloadBlock.model_fields.keys()}

    @model_validator(mode="wrap")
    @classmethod
    def _has_fields_of_backends(cls, block: Any, handler: ModelWrapValidatorHandler[WorkloadBlock]) -> WorkloadBlock:
        if cls is WorkloadBlock and isinstance(block, Mapping) and not block.keys() <= cls.model_fields.keys():
            return cls.complete().model_validate(block)
        return handler(block)

    @field_validator("command")
    @classmethod
    def _command_is_not_blank(cls, command: list[Any] | str) -> list[Any] | str:
        if isinstance(command, str) and not command.strip():
            raise ValueError("the command is empty")
        return command

    @field_validator("write")
    @classmethod
    def _can_be_written(cls, write: dict[str, Any]) -> dict[str, Any]:
        for name, content in write.items():
            _refuse_secrets(content)
            if isinstance(content, str) or name.endswith(_YAML):
                continue
            if not name.endswith(".json"):
                raise ValueError(
                    f"the content of {name} must be a string, because the name does not end in .json, .yaml or .yml"
                )
            try:
                json.dumps(content, allow_nan=False)
            except (TypeError, ValueError) as error:
                raise ValueError(f"the content of {name} cannot be written as JSON: {error}") from None
        return write

    @model_validator(mode="after")
    def _file_names_are_distinct(self) -> Self:
        counts = Counter(PurePosixPath(name) for name in (*self.files, *self.write))
        if repeated := [str(path) for path, count in counts.items() if count > 1]:
            raise ValueError(f"`files` and `write` name a file twice: {', '.join(repeated)}")
        return self


@functools.cache
def _with_fields(models: tuple[type[BaseModel], ...]) -> type[WorkloadBlock]:
    # A backend may inherit the model of another backend, or extend it.
    distinct = [model for model in dict.fromkeys(models) if not any(_extends(other, model) for other in models)]
    bases: tuple[type[Any], ...] = (WorkloadBlock, *distinct)
    return cast("type[WorkloadBlock]", create_model("WorkloadBlock", __base__=bases))


def _extends(model: type[BaseModel], other: type[BaseModel]) -> bool:
    return model is not other and issubclass(model, other)
