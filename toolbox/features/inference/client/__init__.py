"""The client of inference servers, a package that is sent to targets, where the worker runs beside the server.

The modules import only the standard library, `toolbox.ground.kit`, one another, and the library of the protocol that is
in
use: httpx, or grpcio with protobuf. They run on Python 3.10 or later.
"""
