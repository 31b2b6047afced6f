"""The program that runs on a target beside the workloads: one server, and one supervisor per workload.

The orchestrator talks to the server, and sends these modules to the target as text (`toolbox.hosts.bootstrap`). They
need only Linux and Python 3.8 there: they import only the standard library and one another.
"""
