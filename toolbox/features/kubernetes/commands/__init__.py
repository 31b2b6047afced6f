"""The toolbox commands of this feature."""
