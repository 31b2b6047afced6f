"""Backends, which execute workloads on targets. `backend: ssh` in the configuration names the module `ssh.py`.

Each module defines a pydantic model named `Target`, whose fields describe a target. Its method `open(context)` returns
a `toolbox.ground.extensions.protocols.Backend`. A backend does not import another backend.
"""
