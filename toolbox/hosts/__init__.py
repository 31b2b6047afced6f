"""The orchestrator's side of the agent: how it gets onto a target, the connection to it, and what is known of attempts.

Used by the backends `local` and `ssh`, which say how to reach a target and how files get there.
"""
