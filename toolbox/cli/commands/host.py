"""Inspect one machine: its hardware, its system and its packages."""

from toolbox.ground.interface.registry import role


class Host:
    """Inspect one machine: its hardware, its system and its packages."""

    @role
    def capture_state(self, accelerators: bool = True, packages: list[str] | None = None) -> None:
        """
        Record the hardware, the system and the packages of a machine.

        Args:
            accelerators: also record GPUs and TPUs with their drivers.
            packages: the Python packages whose versions to record; all packages when left out.
        """
