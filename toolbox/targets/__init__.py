"""This machine and SSH hosts: sends the agent to a target, connects to it, and tracks attempts.

`agent` is the program on the target. `backends` has the backends `local` and `ssh`. All backends, also those of
features, keep their attempts in `attempt_book`.
"""
