"""The contract of the block `matrix`: what to run, on which combinations, and how it is judged."""

from __future__ import annotations

from toolbox.matrix.matrix_block import MatrixBlock as Contract

__all__ = ["Contract"]
