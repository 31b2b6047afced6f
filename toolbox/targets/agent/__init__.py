"""The program that runs on a target beside the workloads: one server, and one supervisor per workload.

The orchestrator sends the text of these modules and of `toolbox.ground.kit` to the target
(`toolbox.targets.bootstrap`). Then it sends requests to the server. The target needs only Linux and Python 3.8: the
modules import only the standard library, `toolbox.ground.kit` and one another.
"""
