"""
The published definition of the gRPC service fmaas, as a table, and as the text of a `.proto` file.

The table was compared, field by field, with proto/generation.proto of IBM/text-generation-inference. It is independent
of the definition of Topgallant, so that a client that is generated from it shows the compatibility of both.
"""

from __future__ import annotations

import re

# `?` marks `optional`, `*` marks `repeated`.
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

_MODIFIERS = {"?": "optional ", "*": "repeated ", "": ""}


def proto_text() -> str:
    """Return the definition as the text of a `.proto` file."""
    entries = dict(line.split(": ", 1) for line in PUBLISHED.strip().splitlines())
    blocks = [_block(name, entries) for name in entries if "." not in name]
    return "\n".join(['syntax = "proto3";', "package fmaas;", *blocks])


def _block(name: str, entries: dict[str, str]) -> str:
    """Return an enumeration, a service, or a message with those inside of it."""
    items = entries[name].split(", ")
    nested = [_block(other, entries) for other in entries if other.startswith(f"{name}.")]
    kind = "service" if "(" in items[0] else "message" if " " in items[0] else "enum"
    return "\n".join([f"{kind} {name.rpartition('.')[2]} {{", *nested, *map(_item, items), "}"])


def _item(item: str) -> str:
    method = re.fullmatch(r"(\w+)\((\w+)\) (.+)", item)
    if method:
        return f"rpc {method[1]} ({method[2]}) returns ({method[3]});"
    field = re.fullmatch(r"(\w+)=(\d+) (\w+)([?*]?)", item)
    if field:
        return f"{_MODIFIERS[field[4]]}{field[3]} {field[1]} = {field[2]};"
    return f"{item};"
