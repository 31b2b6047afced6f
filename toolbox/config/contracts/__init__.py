"""The contracts of the library: one module per block, with a pydantic model with the name `Contract`.

The name of the module is the path of the block, with `__` for a dot: `secrets.py` is the contract of `secrets`, and
`tests__checks.py` would be the contract of `tests.checks`. A project has its contracts in `projects/NAME/contracts/`.
"""
