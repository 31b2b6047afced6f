"""Contracts of the library's own blocks: one module a block, with a pydantic model named `Contract`.

The name of the module is the path of the block, with `__` for a dot: `secrets.py` is the contract of `secrets`,
`tests__checks.py` would be that of `tests.checks`. A project has contracts of its own in `projects/NAME/contracts/`.
"""
