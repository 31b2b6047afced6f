"""The contract of the block `targets`: where cells can run."""

from __future__ import annotations

from toolbox.matrix.matrix_block import TargetsBlock as Contract

__all__ = ["Contract"]
