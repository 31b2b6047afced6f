"""The contract of the block `repository` of this project: the repository under test, and the revision to test."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from toolbox.api import Secret, git


class Contract(BaseModel):
    """The block `repository`."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    url: str = Field(min_length=1, description="an HTTPS or SSH URL, USER@HOST:PATH, or a directory of this machine")
    revision: str = Field(description="a commit, a branch, a tag or a name such as refs/pull/12/head")
    commit: str | None = Field(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$", description="the run determines this field")
    submodules: bool = Field(description="also fetch the submodules")
    timeout: float = Field(gt=0, description="the time limit in seconds for fetching the commit")
    token: Secret | None = Field(description="a token for HTTPS, as *$@secrets.NAME; only the host of `url` gets it")

    @field_validator("url")
    @classmethod
    def _is_address(cls, url: str) -> str:
        is_directory = ":" not in url and not url.startswith("-")
        if fault := "" if is_directory else git.repository_fault(url):
            raise ValueError(fault)
        return url

    @field_validator("revision")
    @classmethod
    def _is_revision(cls, revision: str) -> str:
        if fault := git.revision_fault(revision):
            raise ValueError(fault)
        return revision

    @model_validator(mode="after")
    def _token_needs_https(self) -> Self:
        if self.token is not None and not self.url.startswith("https://"):
            raise ValueError("`token` is only for an HTTPS URL: use an SSH key for SSH")
        return self
