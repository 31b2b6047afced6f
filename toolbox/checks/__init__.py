"""Checks, which judge the files and metrics of an attempt. `check: files` in the configuration names `files.py`.

Each module defines a pydantic model named `Check` that implements `toolbox.extensions.protocols.Check`.
"""
