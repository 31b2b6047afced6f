"""Checks: judgements on the files and metrics of an attempt. One module per check, found by its name (`check: files`).

A check is a pydantic model named `Check` that implements `toolbox.extensions.protocols.Check`.
"""
