"""The toolbox commands: one module per group, which `toolbox.interface.registry` finds by its file name."""
