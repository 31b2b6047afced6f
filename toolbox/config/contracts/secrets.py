"""The contract of the block `secrets`: where secret files are, and which environment variables are secret."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class SecretsDirectory(BaseModel):
    """The directory that holds one file a secret."""

    model_config = ConfigDict(extra="allow")

    name: str | None = Field(default=None, description="a name of the directory for people")
    env_key: str | None = Field(default=None, description="the environment variable that names the directory")


class Contract(BaseModel):
    """Other fields name the file of a secret, for `*$@secrets.FIELD` to refer to."""

    model_config = ConfigDict(extra="allow")

    dir: SecretsDirectory | None = None
    env: list[str] = Field(default=[], description="environment variables whose values are never shown")
