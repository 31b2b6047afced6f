"""The toolbox commands: one module per group, which `toolbox.ground.interface.registry` finds by its file name."""
