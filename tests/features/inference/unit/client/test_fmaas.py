"""The messages of the gRPC service have the names, numbers and types of the published definition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

import hatch_build
from tests.features.inference.servers.inference.published_fmaas import PUBLISHED
from toolbox.features.inference.client.fmaas import generation_pb2


def described(file: FileDescriptorProto) -> Iterator[str]:
    """Yield a line per message, enumeration and service, as in PUBLISHED."""
    yield from messages(file.message_type, "")
    yield from map(enumeration, file.enum_type)
    for service in file.service:
        methods = [
            f"{method.name}({last(method.input_type)}) {'stream ' * method.server_streaming}{last(method.output_type)}"
            for method in service.method
        ]
        yield f"{service.name}: {', '.join(methods)}"


def messages(found: Iterable[DescriptorProto], scope: str) -> Iterator[str]:
    for message in found:
        yield f"{scope}{message.name}: {', '.join(map(field_text, message.field))}"
        yield from messages(message.nested_type, f"{message.name}.")
        yield from (f"{message.name}.{enumeration(enum)}" for enum in message.enum_type)


def enumeration(enum: EnumDescriptorProto) -> str:
    return f"{enum.name}: {', '.join(f'{value.name}={value.number}' for value in enum.value)}"


def field_text(field: FieldDescriptorProto) -> str:
    kind = last(field.type_name) or FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    repeated = field.label == FieldDescriptorProto.LABEL_REPEATED
    return f"{field.name}={field.number} {kind}{'*' * repeated}{'?' * field.proto3_optional}"


def last(path: str) -> str:
    return path.rpartition(".")[2]


def test_the_definition_is_the_published_one() -> None:
    file = FileDescriptorProto()
    generation_pb2.DESCRIPTOR.CopyToProto(file)
    assert file.package == "fmaas"
    assert set(described(file)) == set(PUBLISHED.strip().splitlines())


def test_messages_and_enumerations_are_attributes_of_the_module() -> None:
    response = generation_pb2.GenerationResponse(text="be", stop_reason=generation_pb2.MAX_TOKENS)
    # Field 4 is a text of two bytes, field 7 is the number 1.
    assert response.SerializeToString(deterministic=True) == b"\x22\x02be\x38\x01"
    assert generation_pb2.StopReason.Name(response.stop_reason) == "MAX_TOKENS"


def test_a_faulty_definition_stops_the_build(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    faulty = tmp_path / "faulty.proto"
    faulty.write_text('syntax = "proto3"; message A { B b = 1; }')
    with pytest.raises(RuntimeError, match=r"cannot compile .*faulty\.proto"):
        hatch_build.compile_proto(faulty)
    assert '"B" is not defined' in capfd.readouterr().err
    assert not faulty.with_name("faulty_pb2.py").exists()
