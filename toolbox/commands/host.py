"""Look at one machine: its hardware, its system and its packages."""

from toolbox.ansible.roles import role


class Host:
    """Look at one machine: its hardware, its system and its packages."""

    @role
    def capture_state(self, accelerators: bool = True, packages: list[str] | None = None) -> None:
        """
        Record the hardware, the system and the packages of a machine.

        Args:
            accelerators: also ask for GPUs and TPUs and their drivers.
            packages: Python packages whose versions to record; all of them when left out.
        """
