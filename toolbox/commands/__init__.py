"""The command line: one file a group, found by its name (see `toolbox.interface.registry`)."""
