"""The interface of toolbox commands: how commands are found, their parameters, and their help."""
