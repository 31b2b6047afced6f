"""Code that the agent and the workers share with the orchestrator, and that is sent to targets with them.

The modules need only Linux and Python 3.8: they import only the standard library and one another.
"""
