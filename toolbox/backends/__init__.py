"""Backends: where cells execute. One module a backend, found by its name (`backend: ssh`).

A backend is a pydantic model named `Target`, the fields of a target of it, with a method `open(context)` that returns a
`toolbox.extensions.protocols.Backend`. Backends know nothing of one another.
"""
