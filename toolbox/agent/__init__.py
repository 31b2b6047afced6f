"""What runs on a target, beside the workloads: the server that the orchestrator talks to, and the supervisors.

These modules are sent to the target as text (`toolbox.hosts.bootstrap`). They need Python 3.8 and Linux there, and
nothing else: they import only the standard library and one another.
"""
