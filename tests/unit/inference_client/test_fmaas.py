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
from toolbox.inference_client.fmaas import generation_pb2

# From proto/generation.proto of IBM/text-generation-inference. `?` marks `optional`, `*` marks `repeated`.
PUBLISHED = """
BatchedGenerationRequest: model_id=1 string, prefix_id=2 string?, requests=3 GenerationRequest*, params=10 Parameters
SingleGenerationRequest: model_id=1 string, prefix_id=2 string?, request=3 GenerationRequest, params=10 Parameters
BatchedGenerationResponse: responses=1 GenerationResponse*
GenerationRequest: text=2 string
GenerationResponse: generated_token_count=2 uint32, text=4 string, input_token_count=6 uint32, \
stop_reason=7 StopReason, tokens=8 TokenInfo*, input_tokens=9 TokenInfo*, seed=10 uint64, stop_sequence=11 string
Parameters: method=1 DecodingMethod, sampling=2 SamplingParameters, stopping=3 StoppingCriteria, \
response=4 ResponseOptions, decoding=5 DecodingParameters, truncate_input_tokens=6 uint32
DecodingParameters: repetition_penalty=1 float, length_penalty=2 LengthPenalty?
DecodingParameters.LengthPenalty: start_index=1 uint32, decay_factor=2 float
SamplingParameters: temperature=1 float, top_k=2 uint32, top_p=3 float, typical_p=4 float, seed=5 uint64?
StoppingCriteria: max_new_tokens=1 uint32, min_new_tokens=2 uint32, time_limit_millis=3 uint32, \
stop_sequences=4 string*, include_stop_sequence=5 bool?
ResponseOptions: input_text=1 bool, generated_tokens=2 bool, input_tokens=3 bool, token_logprobs=4 bool, \
token_ranks=5 bool, top_n_tokens=6 uint32
TokenInfo: text=2 string, logprob=3 float, rank=4 uint32, top_tokens=5 TopToken*
TokenInfo.TopToken: text=2 string, logprob=3 float
BatchedTokenizeRequest: model_id=1 string, requests=2 TokenizeRequest*, return_tokens=3 bool, \
return_offsets=4 bool, truncate_input_tokens=5 uint32
BatchedTokenizeResponse: responses=1 TokenizeResponse*
TokenizeRequest: text=1 string
TokenizeResponse: token_count=1 uint32, tokens=2 string*, offsets=3 Offset*
TokenizeResponse.Offset: start=1 uint32, end=2 uint32
ModelInfoRequest: model_id=1 string
ModelInfoResponse: model_kind=1 ModelKind, max_sequence_length=2 uint32, max_new_tokens=3 uint32
ModelInfoResponse.ModelKind: DECODER_ONLY=0, ENCODER_DECODER=1
DecodingMethod: GREEDY=0, SAMPLE=1
StopReason: NOT_FINISHED=0, MAX_TOKENS=1, EOS_TOKEN=2, CANCELLED=3, TIME_LIMIT=4, STOP_SEQUENCE=5, \
TOKEN_LIMIT=6, ERROR=7
GenerationService: Generate(BatchedGenerationRequest) BatchedGenerationResponse, \
GenerateStream(SingleGenerationRequest) stream GenerationResponse, \
Tokenize(BatchedTokenizeRequest) BatchedTokenizeResponse, ModelInfo(ModelInfoRequest) ModelInfoResponse
"""


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
