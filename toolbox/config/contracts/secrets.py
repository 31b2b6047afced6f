"""The contract of the block `secrets`: the directory of secret files, and the secret environment variables."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from toolbox.config.contracts._open_block import OpenBlock


class SecretsDirectory(OpenBlock):
    """The directory with one file per secret."""

    name: str | None = Field(default=None, description="a readable name of the directory")
    env_key: str | None = Field(default=None, description="the environment variable that names the directory")


class Contract(BaseModel):
    """The block `secrets`.

    Every field except `dir` and `env` contains the file name of a secret. `*$@secrets.FIELD` reads the file.
    """

    model_config = ConfigDict(extra="allow")

    __pydantic_extra__: dict[str, str | None]
    dir: SecretsDirectory | None = None
    env: list[str] = Field(default=[], description="environment variables whose values are masked")
