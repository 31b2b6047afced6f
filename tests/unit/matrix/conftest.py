"""What the tests of the matrix share."""

from typing import Any

from toolbox.matrix.specification import MatrixBlock


def matrix(axes: dict[str, Any], **fields: Any) -> MatrixBlock:
    """A matrix whose workload does not matter: `matrix({"batch": [8, 16]}, exclude=[{"batch": 8}])`."""
    return MatrixBlock.model_validate({"axes": axes, "workload": {"command": "true"}, **fields})
