"""Backends: where cells execute. One module per backend, found by its name (`backend: ssh`).

A backend is a pydantic model named `Target`, whose fields describe a target. Its method `open(context)` returns a
`toolbox.extensions.protocols.Backend`. Backends know nothing of one another.
"""
