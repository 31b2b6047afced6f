"""The orchestrator's side of the agent: brings it onto a target, connects to it, and tracks the attempts there.

The backends `local` and `ssh` use this package. They define how to reach a target and how files get there.
"""
