"""The contract of the block `environment` of this project: what the commands of the suites find on a target."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Command = Annotated[str, Field(min_length=1)] | Annotated[list[str], Field(min_length=1)]


class Contract(BaseModel):
    """The block `environment`."""

    model_config = ConfigDict(extra="forbid")

    python: str = Field(min_length=1, description="the Python that makes the virtual environment")
    venv: bool = Field(description="make a virtual environment; otherwise the commands use the programs of the target")
    install: list[Command] = Field(description="the commands that install the repository and its dependencies")
    variables: dict[str, str] = Field(description="environment variables of all commands")
    cache: str | None = Field(
        pattern=r"^(/|~/)",
        description="a directory for downloads that outlives a run, for example on a persistent disk",
    )
