"""Reads case files: lists of requests to a server of a language model, with the responses or errors to expect.

The format is that of `integration_tests/test_cases_*.yaml` of https://github.com/IBM/text-generation-inference. A file
may also be a mapping whose values are the cases. `wire_models.py` describes requests and responses.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    RootModel,
    Tag,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from toolbox.config import contract, document
from toolbox.features.inference.client.answer_format import OPENAI_KINDS
from toolbox.features.inference.model_descriptions import (
    DESCRIPTIONS,
    ModelInfo,
    ModelInfoRequest,
    ModelList,
    ModelsRequest,
)
from toolbox.features.inference.wire_models import (
    AnyRequest,
    AnyResponse,
    Chat,
    Completion,
    Generate,
    Tokenize,
    has_value,
    is_json,
)
from toolbox.ground.extensions import loading
from toolbox.ground.extensions.protocols import COMPARATORS
from toolbox.ground.kit.server_answers import Generation, ServerError
from toolbox.ground.model.errors import ConfigurationError, ConfigurationFaults
from toolbox.ground.model.text import counted

log = logging.getLogger(__name__)

Protocol = Literal["fmaas", "tokenize", "completions", "chat", "model_info", "models"]
LARGEST: Final = 1 << 22  # bytes of a case file
MAX_CASES: Final = 5000
RETRIES: Final = 2
_MAX_RETRIES: Final = 10
_MAX_VALUES: Final = 500_000
_LONGEST_NAME: Final = 250
_FIELD: Final = "cases"  # of the document whose list a case file is
_PROTOCOLS: Final[Mapping[type[BaseModel], Protocol]] = {
    Generate: "fmaas",
    Tokenize: "tokenize",
    Completion: "completions",
    Chat: "chat",
    ModelInfoRequest: "model_info",
    ModelsRequest: "models",
}
_TEXTS: Final = ("fmaas", "completions", "chat")  # the protocols of requests for texts
# The models of a request and of its response, for the kinds that their fields do not show.
_BY_TYPE: Final[Mapping[str, Mapping[str, type[BaseModel]]]] = {
    "request": {"tokenize": Tokenize, "model_info": ModelInfoRequest, "models": ModelsRequest},
    "response": {"model_info": ModelInfo, "models": ModelList},
}


def _is_comparator(spec: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(spec.get(COMPARATORS.key), str):
        raise ValueError("the field `comparator` is missing, or not a name")  # noqa: TRY004  # pydantic reports ValueError
    loading.parse(COMPARATORS, spec)
    return spec


def _is_line(name: str) -> str:
    if not name.strip() or not name.isprintable():
        raise ValueError("must be one line of printable characters")
    return name


def _of_type(value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
    """Validate a request or a response with the model of the given `request_type`, else by its fields."""
    model = _BY_TYPE[str(info.field_name)].get(info.data.get("request_type") or "")
    return handler(value) if model is None or value is None else model.model_validate(is_json(value))


# Without a `request_type`, the fields of a request and of a response show what they are.
_BY_FIELDS: Final = Discriminator(lambda _: "by fields")
_Request = Annotated[
    Annotated[AnyRequest, Tag("by fields")]
    | Annotated[ModelInfoRequest, Tag("model_info")]
    | Annotated[ModelsRequest, Tag("models")],
    _BY_FIELDS,
]
_Response = Annotated[
    Annotated[AnyResponse, Tag("by fields")]
    | Annotated[ModelInfo, Tag("model_info")]
    | Annotated[ModelList, Tag("models")],
    _BY_FIELDS,
]
Comparators = Annotated[list[Annotated[dict[str, Any], AfterValidator(_is_comparator)]], Field(min_length=1)]


class ExpectedError(BaseModel):
    """The error that a server must answer. A field that is missing is not compared.

    Args:
        code: the name of the status of gRPC, or the code in the body of an HTTP response.
        status: the HTTP status.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    code: str | None = None
    message: str | None = None
    status: int | None = None

    _has_value = field_validator("*", mode="before")(has_value)


class _Entry(BaseModel):
    """A case in a file. A field in camelCase is the same as in snake_case.

    Args:
        single_shard_only: whether a server with several shards cannot answer the request.
        skip_check: whether the output is random. Only the counts and the tokens of the input are compared.
        request_type: the kind of the request, if its fields do not show it.
        stream: whether the request is also sent as a stream; None for the default of the specification.
        retries: how often a request that the server refuses for now (429 or 503 with `Retry-After`) is sent again; None
            for `RETRIES`, or for 0 if the case expects an error. Only requests over HTTP are sent again.
        compare: the comparators of the case; None for those of the specification.
    """

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", strict=True, frozen=True)

    name: Annotated[str, Field(max_length=_LONGEST_NAME), AfterValidator(_is_line)]
    request_type: Literal["generate", "tokenize", "model_info", "models"] | None = None  # read before the next fields
    request: Annotated[_Request, WrapValidator(_of_type), BeforeValidator(is_json)]
    response: Annotated[_Response | None, WrapValidator(_of_type)] = None
    error: ExpectedError | None = None
    single_shard_only: bool = False
    skip_check: bool = False
    stream: bool | None = None
    retries: Annotated[int, Field(ge=0, le=_MAX_RETRIES)] | None = None
    compare: Comparators | None = None

    @model_validator(mode="after")
    def _expects_one_thing(self) -> _Entry:
        if self.response is not None and self.error is not None:
            raise ValueError("a case has a `response` or an `error`, not both")
        for name in ("response", "error"):  # a null would mean that any answer passes
            if name in self.model_fields_set and getattr(self, name) is None:
                raise ValueError(f"`{name}` has no value: write one, or remove the field")
        are_of_errors = {spec[COMPARATORS.key] == "error" for spec in self.compare or ()}
        if self.error is not None and are_of_errors == {False}:
            raise ValueError("only the comparator `error` compares an expected error, so `compare` has no effect")
        if self.error is None and are_of_errors == {True}:
            raise ValueError("the comparator `error` compares only an expected `error`, which the case does not give")
        if self.skip_check and self.compare:
            raise ValueError("`skip_check` compares no output, so `compare` has no effect: remove one of them")
        if self.compare and self.error is None and self.request_type in DESCRIPTIONS:
            raise ValueError(f"the response to `{self.request_type}` is compared by its fields: remove `compare`")
        if self.skip_check and self.request_type in DESCRIPTIONS:
            raise ValueError(f"the response to `{self.request_type}` is not random: remove `skip_check`")
        return self


class _Entries(RootModel[Annotated[list[_Entry], Field(max_length=MAX_CASES)]]):
    """The cases of a file."""


@dataclass(frozen=True, slots=True)
class Case:
    """A request to a server, and what to expect.

    Args:
        suite: the name of the file without its ending.
        name: the name of the case. The second case of a name in a file is `NAME #2`.
        protocol: the message or the path that sends the request.
        request: the request as the file has it.
        requests: the number of requests in the batch.
        expected: the answer to each request of the batch, or one answer with the expected error; None if the file has
            neither a response nor an error, so that any complete answer is right.
        description: the expected fields of a description of models; None if no such response is expected.
        compare: the comparators as the configuration describes them; None for those of the specification.
        location: `file:line` of the case.
        retries: how often a request that the server refuses for now is sent again.
    """

    suite: str
    name: str
    protocol: Protocol
    request: Mapping[str, Any]
    requests: int
    expected: tuple[Generation, ...] | None
    compare: tuple[Mapping[str, Any], ...] | None = None
    is_single_shard_only: bool = False
    is_random: bool = False
    stream: bool | None = None
    location: str = ""
    description: Mapping[str, Any] | None = None
    retries: int = 0


def load(file: Path, *, shown: str = "") -> list[Case]:
    """Read the cases of a file.

    Args:
        shown: the name of the file in messages; by default its path.

    Raises:
        ConfigurationError: the file is missing, empty, too large or broken. The message names every fault with its
            file and line.
    """
    shown = shown or str(file)
    return parse(read_text(file, shown), source=shown, suite=file.stem)


def parse(text: str, *, source: str, suite: str) -> list[Case]:
    """Return the cases in the text of a file. Raise the same errors as `load`."""
    parsed = document.parse_list(text, source=source, field=_FIELD, most_values=_MAX_VALUES)
    for line in parsed.ambiguous_lines():
        log.warning("%s", line, extra=document.ONCE)
    written = parsed.root[_FIELD]
    if not written:
        raise ConfigurationError(f"{source}: the file has no case")
    entries = contract.checked(parsed, (_FIELD,), _Entries, written).root
    seen: Counter[str] = Counter()
    cases, faults = [], []
    for index, entry in enumerate(entries):
        seen[entry.name] += 1
        name = entry.name if seen[entry.name] == 1 else f"{entry.name} #{seen[entry.name]}"
        location = parsed.where((_FIELD, index))
        case = _case(suite, name, entry, written[index]["request"], location)
        faults += [f"{location}: the case {name!r}: {fault}" for fault in _faults(case, entry)]
        cases.append(case)
    if faults:
        raise ConfigurationFaults(faults)
    return cases


def read_text(file: Path, shown: str) -> str:
    """Return the text of a case file. The errors are those of `load`."""
    if file.exists() and not file.is_file():
        raise ConfigurationError(f"the case file {shown} is not a regular file")
    if file.exists() and (size := file.stat().st_size) > LARGEST:
        raise ConfigurationError(f"the case file {shown} has {size:,} bytes, more than {LARGEST:,}")
    return document.read_text(file, what="the case file")


def _case(suite: str, name: str, entry: _Entry, request: Mapping[str, Any], location: str) -> Case:
    expected: tuple[Generation, ...] | None = None
    description: Mapping[str, Any] | None = None
    if entry.error is not None:
        expected = (Generation(error=ServerError(entry.error.code, entry.error.message, entry.error.status)),)
    elif isinstance(entry.response, ModelInfo | ModelList):
        description = entry.response.fields()
    elif entry.response is not None:
        expected = tuple(entry.response.generations())
    return Case(
        suite,
        name,
        _PROTOCOLS[type(entry.request)],
        request,
        _batch_size(entry.request),
        expected,
        tuple(entry.compare) if entry.compare is not None else None,
        entry.single_shard_only,
        entry.skip_check,
        entry.stream,
        location,
        description,
        _retries(entry),
    )


def _retries(entry: _Entry) -> int:
    if entry.retries is not None:
        return entry.retries
    return RETRIES if entry.error is None and _PROTOCOLS[type(entry.request)] in OPENAI_KINDS else 0


def _batch_size(request: BaseModel) -> int:
    if isinstance(request, Generate | Tokenize):
        return len(request.requests)
    choices = (request.model_extra or {}).get("n")
    size = choices if isinstance(choices, int) and choices > 0 else 1
    if isinstance(request, Completion) and isinstance(request.prompt, list) and not _is_tokens(request.prompt):
        return size * len(request.prompt)
    return size


def _is_tokens(prompt: list[Any]) -> bool:
    return bool(prompt) and isinstance(prompt[0], int)


def _faults(case: Case, entry: _Entry) -> list[str]:
    """Return what is wrong with a case as a whole."""
    faults = []
    if entry.error is None and case.expected is not None and len(case.expected) != case.requests:
        answers = counted(len(case.expected), "answer")
        faults.append(f"the response has {answers} to {counted(case.requests, 'request')}")
    faults += _faults_of_response(case)
    if entry.stream and not can_stream(case):
        faults.append("only a request for a text can be sent as a stream")
    if entry.retries is not None and case.protocol not in OPENAI_KINDS:
        faults.append("`retries` has an effect only on requests over HTTP")
    if entry.request.model_extra and entry.request.model_extra.get("stream"):
        faults.append("set `stream` beside the request, not in it")
    return faults


def _faults_of_response(case: Case) -> Iterator[str]:
    """Yield the answers of a response of which nothing would be compared."""
    hint = "so nothing would be compared: write what you expect, or remove the `response`"
    if case.description is not None and not any(value != [] for value in case.description.values()):
        yield f"the response has no fields, {hint}"
    if case.is_random or any(spec[COMPARATORS.key] != "exact" for spec in case.compare or ()):
        return  # other comparators have fields of their own, or need what the case does not give
    for number, answer in enumerate(case.expected or (), start=1):
        if answer == Generation():
            yield f"answer {number} of the response has no fields, {hint}"


def can_stream(case: Case) -> bool:
    """Return whether a case can also be sent as a stream: it asks for a text."""
    return case.protocol in _TEXTS and case.requests > 0
