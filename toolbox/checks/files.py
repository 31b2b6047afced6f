"""Files that the workload has to leave: how many, and that they hold something."""

from __future__ import annotations

from pathlib import PurePath

from pydantic import BaseModel, ConfigDict, Field, field_validator

from toolbox.model.evidence import Evidence, Judgement


class Check(BaseModel):
    """A pattern, and how many files have to match it; at least one when no count is given."""

    model_config = ConfigDict(extra="forbid")

    glob: str = Field(min_length=1)
    count: int | None = Field(default=None, ge=0)
    not_empty: bool = True

    @field_validator("glob")
    @classmethod
    def _stays_inside(cls, pattern: str) -> str:
        if PurePath(pattern).is_absolute() or ".." in PurePath(pattern).parts:
            raise ValueError("a pattern for files inside of the directory was expected")
        return pattern

    def judge(self, evidence: Evidence) -> Judgement:
        """Count the files."""
        found = sorted(path for path in evidence.directory.glob(self.glob) if path.is_file())
        wanted = "at least one" if self.count is None else f"exactly {self.count}"
        enough = bool(found) if self.count is None else len(found) == self.count
        empty = [path.name for path in found if path.stat().st_size == 0] if self.not_empty else []
        if empty:
            return Judgement(False, f"{', '.join(empty)} of {self.glob} is empty")
        return Judgement(enough, f"{len(found)} files match {self.glob}, {wanted} expected")
