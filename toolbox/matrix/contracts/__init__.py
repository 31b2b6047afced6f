"""Contracts of the blocks of a configuration that the matrix reads; see `toolbox/config/contracts/`."""
