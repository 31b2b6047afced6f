"""The orchestrator's side of the agent: sends the agent to a target, connects to it, and tracks attempts.

The backends `local` and `ssh` use this package. They define how to reach a target and how to transfer files.
"""
