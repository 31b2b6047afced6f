"""Checks: judgements on what a workload left behind. One module a check, found by its name (`check: files`).

A check is a pydantic model named `Check` that implements `toolbox.extensions.protocols.Check`.
"""
