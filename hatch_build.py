"""
Compile the gRPC definition of inference servers, when pip builds or installs Topgallant.

`python3 hatch_build.py` only compiles the definition, for a checkout that is used without an installation.

The code that protoc itself generates works only with the protobuf release that it was made for. This module is also
sent to targets, whose protobuf may be older or newer. So protoc makes only the description of the messages, whose
format is stable, and the type stub. protobuf makes the classes from the description when the module is imported.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2
from grpc_tools import protoc
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PROTO = Path(__file__).parent / "toolbox/features/inference/client/fmaas/generation.proto"

MODULE = '''"""The messages of {proto}, from which hatch_build.py generates this file."""

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

# The pool is a private one, so that a program may also load another definition of the same service.
DESCRIPTOR = descriptor_pool.DescriptorPool().AddSerializedFile(
    {description!r}
)
for _name, _message in DESCRIPTOR.message_types_by_name.items():
    globals()[_name] = message_factory.GetMessageClass(_message)
for _name, _enum in DESCRIPTOR.enum_types_by_name.items():
    globals()[_name] = EnumTypeWrapper(_enum)
    globals().update({{value.name: value.number for value in _enum.values}})
'''


class CustomBuildHook(BuildHookInterface[Any]):
    """The hook that hatchling calls before it builds a wheel or an editable installation."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the definition, and include the results, although git ignores them."""
        del version
        if PROTO.exists():  # the feature inference may be left out
            compile_proto(PROTO)
            build_data["artifacts"] += ["generation_pb2.py", "generation_pb2.pyi"]


def compile_proto(proto: Path) -> None:
    """Write `NAME_pb2.py` and its stub `NAME_pb2.pyi` beside `NAME.proto`."""
    with tempfile.TemporaryDirectory() as scratch:
        description = Path(scratch, "description")
        options = [f"--proto_path={proto.parent}", f"--descriptor_set_out={description}", f"--pyi_out={proto.parent}"]
        if protoc.main(["protoc", *options, proto.name]) != 0:
            raise RuntimeError(f"protoc cannot compile {proto}")
        (file,) = descriptor_pb2.FileDescriptorSet.FromString(description.read_bytes()).file
    module = MODULE.format(proto=proto.name, description=file.SerializeToString())
    proto.with_name(f"{proto.stem}_pb2.py").write_text(module, encoding="utf-8")


if __name__ == "__main__":
    compile_proto(PROTO)
