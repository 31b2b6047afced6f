"""A target of the backend implements only what applies to it."""

from toolbox.features.kubernetes.backends.kubernetes import Target
from toolbox.ground.extensions.protocols import MachineTarget, SelectiveTarget, VerifiableTarget


def test_a_target_is_no_machine_and_is_verified() -> None:
    kinds = (MachineTarget, SelectiveTarget, VerifiableTarget)
    assert [isinstance(Target(), kind) for kind in kinds] == [False, True, True]
