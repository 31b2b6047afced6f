"""Reads the parameters of a toolbox command from its Python signature and docstring, and converts arguments.

Names, types and defaults come from the signature, and the help comes from the docstring or from `Help` in a type. A
parameter may stand for a group of flags that several commands share.
Arguments on a command line are strings, which are converted to the type of the parameter: `--tag=1.10` is "1.10" for a
`str` parameter, and 1.1 for a `float` parameter.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
import os
import re
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from toolbox.ground.interface import secret_arguments
from toolbox.ground.model.addresses import Address
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.nearest import did_you_mean
from toolbox.ground.model.quantities import DURATION, Duration, Range
from toolbox.ground.model.secrets import MASK, READER, Secret
from toolbox.ground.model.text import abbreviated

if TYPE_CHECKING:
    from pydantic import TypeAdapter

log = logging.getLogger(__name__)

NO_DEFAULT: Final = inspect.Parameter.empty
_LONGEST_NAME: Final = 255
_OUT_OF_RANGE: Final = {"greater_than", "greater_than_equal", "less_than_equal"}  # types of errors of pydantic
_LONGEST_PATH: Final = 4096
_NULLS: Final = {"null", "None", "~"}
_NAMES: Final[Mapping[Any, str]] = {
    **dict.fromkeys((Any, NO_DEFAULT), "any value"),
    **dict.fromkeys((None, type(None)), "null"),
    Path: "path",
    Address: "host",
    Secret: f"secret, as {secret_arguments.FORMS}",
}
_PLAIN_NAMES: Final[Mapping[Any, str]] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    list: "a list",
    dict: "a mapping",
    Path: "a path",
    Address: "a host",
    Secret: f"a secret ({secret_arguments.FORMS})",
}
_ARGUMENT = re.compile(r"(?P<name>\w+)\s*(?:\([^)]*\))?:\s*(?P<text>.*)")


@dataclass(frozen=True, slots=True)
class Help:
    """The help of an option that several commands share: `Namespace = Annotated[str | None, Help("...")]`.

    If the docstring of a command documents the parameter, that text is used instead.
    """

    text: str


class FlagGroup:
    """The base of a group of flags that several commands share: a frozen dataclass, whose fields are the flags.

    A command names the group as the annotation of a keyword-only parameter, and receives an instance: `*, disk: Disk`.
    The help of a field is in the docstring of the group, in that of the command, or in its type, as for a parameter.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a toolbox command.

    Args:
        annotation: the type.
        default: the default value; `NO_DEFAULT` if the parameter is required.
        text: the help.
        positional: whether a command line may pass the argument by position.
        variadic: whether the parameter takes all remaining positional arguments, as a list that must not be empty.
    """

    name: str
    annotation: Any
    default: Any
    text: str
    positional: bool = True
    variadic: bool = False

    @property
    def required(self) -> bool:
        """Whether the parameter has no default."""
        return self.default is NO_DEFAULT


@dataclass(frozen=True, slots=True)
class Signature:
    """The name, the parameters and the help of a toolbox command.

    Args:
        parameters: the parameters. The flags of a group are parameters, in place of the group.
        groups: the groups of flags, by the name of the parameter of the method.
    """

    name: str
    parameters: tuple[Parameter, ...]
    summary: str
    description: str = ""
    groups: Mapping[str, type[FlagGroup]] = field(default_factory=dict)

    @property
    def names(self) -> set[str]:
        """The names of the parameters."""
        return {parameter.name for parameter in self.parameters}


def of(function: Callable[..., Any], *, name: str, extra: Sequence[Parameter] = ()) -> Signature:
    """Return the signature of the function or method of a command, without `self` and with the extra parameters.

    Raises:
        TypeError: a group of flags is not a keyword-only parameter, or two parameters have the same name.
    """
    doc = inspect.getdoc(function) or ""
    summary, description, texts = parse_docstring(doc)
    parameters: list[Parameter] = []
    groups: dict[str, type[FlagGroup]] = {}
    for parameter in inspect.signature(inspect.unwrap(function), eval_str=True).parameters.values():
        group = parameter.annotation
        if isinstance(group, type) and issubclass(group, FlagGroup):
            if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
                raise TypeError(f"{name}: `{parameter.name}` is a group of flags: write it after `*` in the signature")
            groups[parameter.name] = group
            parameters += _flags(group, texts)
        elif parameter.name != "self":
            parameters.append(_parameter(parameter, texts))
    names = [parameter.name for parameter in parameters]
    if twice := {each for each in names if names.count(each) > 1}:
        raise TypeError(f"{name}: two parameters are called {min(twice)}")
    return Signature(name, (*parameters, *extra), summary, description, groups)


def _flags(group: type[FlagGroup], texts: Mapping[str, str]) -> list[Parameter]:
    """Return the flags of a group.

    Args:
        texts: the help in the docstring of the command, by the names of flags.
    """
    kinds = get_type_hints(group, include_extras=True)
    texts = {**parse_docstring(inspect.getdoc(group) or "")[2], **texts}
    return [
        _parameter(
            inspect.Parameter(
                each.name, inspect.Parameter.KEYWORD_ONLY, default=_default(each), annotation=kinds[each.name]
            ),
            texts,
        )
        for each in dataclasses.fields(group)  # type: ignore[arg-type]  # every group is a dataclass
    ]


def _default(field_: dataclasses.Field[Any]) -> Any:
    if field_.default_factory is not dataclasses.MISSING:
        return field_.default_factory()
    return NO_DEFAULT if field_.default is dataclasses.MISSING else field_.default


def _parameter(parameter: inspect.Parameter, texts: Mapping[str, str]) -> Parameter:
    annotation, shared = _without_help(parameter.annotation)
    is_variadic = parameter.kind is inspect.Parameter.VAR_POSITIONAL
    return Parameter(
        parameter.name,
        list[annotation] if is_variadic else annotation,  # type: ignore[valid-type]
        parameter.default,
        texts.get(parameter.name, shared),
        parameter.kind is not inspect.Parameter.KEYWORD_ONLY,
        is_variadic,
    )


def _without_help(annotation: Any) -> tuple[Any, str]:
    """Return the type of an annotation without its `Help`, and the text of the help."""
    if get_origin(annotation) is not Annotated:
        return annotation, ""
    kind, *marks = get_args(annotation)
    text = next((mark.text for mark in marks if isinstance(mark, Help)), "")
    other_marks = [mark for mark in marks if not isinstance(mark, Help)]
    return Annotated[(kind, *other_marks)] if other_marks else kind, text


def parse_docstring(doc: str) -> tuple[str, str, dict[str, str]]:
    """Return the first paragraph of a docstring, the paragraphs after it, and the texts of `Args:` by name."""
    introduction, _, arguments = doc.partition("\nArgs:")
    arguments = re.split(r"\n(?=\S)", arguments, maxsplit=1)[0]
    summary, _, description = introduction.strip().partition("\n\n")
    texts: dict[str, str] = {}
    name = ""
    indent = min((len(line) - len(line.lstrip()) for line in arguments.splitlines() if line.strip()), default=0)
    for line in arguments.splitlines():
        is_first = len(line) - len(line.lstrip()) == indent
        if is_first and (match := _ARGUMENT.match(line.strip())):
            name = match["name"]
            texts[name] = match["text"]
        elif name and line.strip():
            texts[name] += f" {line.strip()}"
    description = re.split(r"(?:^|\n)(?:Raises|Returns|Yields):", description, maxsplit=1)[0]
    return " ".join(summary.split()), description.strip(), texts


def type_name(annotation: Any) -> str:
    """Return the name of a type for the help and for messages."""
    if _mark({annotation}, Duration) is not None:
        return "duration"
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation in _NAMES:
        return _NAMES[annotation]
    if origin in {Union, types.UnionType}:
        return " or ".join(type_name(member) for member in arguments)
    is_enum = isinstance(annotation, type) and issubclass(annotation, Enum)
    if origin is Literal or is_enum:
        return "one of " + ", ".join(map(str, arguments or [member.value for member in annotation]))
    if origin is list:
        return f"list of {type_name(arguments[0])}"
    if origin is dict:
        return f"mapping of {type_name(arguments[0])} to {type_name(arguments[1])}"
    return str(getattr(annotation, "__name__", annotation))


def _expected(annotation: Any) -> str:
    """Return the plain name of a type for messages about a wrong value, such as `a whole number or null`."""
    if _mark({annotation}, Duration) is not None:
        return DURATION if get_args(annotation)[0] is float else f"{DURATION}, without fractions of a second"
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in {Union, types.UnionType}:
        return " or ".join(_expected(member) for member in get_args(annotation))
    kind, arguments = get_origin(annotation) or annotation, get_args(annotation)
    if kind is dict and arguments and arguments[1] is not Any:
        return f"a mapping with {_expected(arguments[1])} for each key"
    return _PLAIN_NAMES[kind] if kind in _PLAIN_NAMES else type_name(annotation)


def _item_type(annotation: Any) -> Any:
    """Return the type of the items of a list, or of the list in a union; None for other types."""
    lists = [kind for kind in members(annotation) if get_origin(kind) is list]
    return get_args(lists[0])[0] if lists else None


def bind(
    signature: Signature, arguments: Mapping[str, Any], *, text: bool, argv: Collection[str] = ()
) -> dict[str, Any]:
    """Convert the arguments of a call to the types of the parameters, and add the defaults.

    Args:
        arguments: the values by the names of the parameters.
        text: whether all values are strings from a command line.
        argv: the names of the arguments in `--extra`, whose values come from a command line but are already parsed.

    Raises:
        UsageError: the message names every argument that is unknown, missing or of the wrong type.
    """
    faults = [
        f"unknown argument --{name}: {did_you_mean(name, signature.names, label='arguments', prefix='--')}"
        for name in arguments
        if name not in signature.names
    ]
    values: dict[str, Any] = {}
    for parameter in signature.parameters:
        if parameter.name in arguments:
            try:
                value = arguments[parameter.name]
                values[parameter.name] = convert(parameter, value, text=text, argv=parameter.name in argv)
            except ValueError as error:
                faults.append(str(error))
        elif parameter.required:
            faults.append(f"--{parameter.name} is missing ({_expected(parameter.annotation)}): {parameter.text}")
        else:
            values[parameter.name] = parameter.default
    if faults:
        raise UsageError(
            "\n  ".join([f"{signature.name}:", *faults]) if len(faults) > 1 else f"{signature.name}: {faults[0]}"
        )
    return values


def call(signature: Signature, function: Callable[..., Any], values: Mapping[str, Any]) -> Any:
    """Call a function with the values of its parameters. A variadic parameter is passed by position."""
    keywords = dict(values)
    for name, group in signature.groups.items():
        flags = {each.name: keywords.pop(each.name) for each in dataclasses.fields(group)}  # type: ignore[arg-type]
        keywords[name] = group(**flags)
    positional: list[Any] = []
    for index, parameter in enumerate(signature.parameters):
        if parameter.variadic:
            positional = [keywords.pop(earlier.name) for earlier in signature.parameters[:index]]
            positional += keywords.pop(parameter.name)
    return function(*positional, **keywords)


def convert(parameter: Parameter, value: Any, *, text: bool, argv: bool = False) -> Any:
    """Convert a value to the type of a parameter.

    Args:
        text: whether the value is a string from a command line.
        argv: whether the value comes from a command line but is already parsed. A secret from a command line must be a
            reference.

    Raises:
        ValueError: the value cannot be converted. The message says what was expected.
    """
    kinds = members(parameter.annotation)
    if isinstance(value, Secret) and kinds & {str, Secret, Any}:
        return value
    if text and isinstance(value, str):
        value = _from_text(value, parameter, kinds)
    if parameter.annotation in {NO_DEFAULT, Any}:
        return value
    from pydantic import ValidationError

    reader = secret_arguments.read if text or argv else Secret
    try:
        converted = _adapter(parameter.annotation).validate_python(value, context={READER: reader})
    except ValidationError as error:
        first = error.errors()[0]
        place = "".join(f"[{part}]" for part in first["loc"] if isinstance(part, int))
        if first["type"] == "value_error":
            reason = str(first["ctx"]["error"])
            is_rule = reason.startswith("must ")
            reason = f" {reason}, not {abbreviated(first['input'])}" if is_rule else f": {reason}"
            raise ValueError(f"--{parameter.name}{place}{reason}") from None
        if first["type"] in _OUT_OF_RANGE and (allowed := _mark(kinds, Range)) is not None:
            raise ValueError(f"--{parameter.name} must be {allowed}, not {first['input']}") from None
        expected, wrong = parameter.annotation, value
        if place and (items := _item_type(expected)) is not None:
            expected, wrong = items, first["input"]
        text_of_value = MASK if _mentions(parameter.annotation, Secret) else abbreviated(wrong)
        kind = "a finite number" if first["type"] == "finite_number" else _expected(expected)
        raise ValueError(f"--{parameter.name}{place} must be {kind}, not {text_of_value}") from None
    if isinstance(converted, Path) and not _is_openable(converted):
        raise ValueError(f"--{parameter.name} is {abbreviated(str(converted))}, which is too long for a path")
    return converted


def _is_openable(path: Path) -> bool:
    """Return whether a path is short enough for Linux (PATH_MAX and NAME_MAX of limits.h)."""
    sizes = [len(os.fsencode(part)) for part in path.parts]
    return max(sizes, default=0) <= _LONGEST_NAME and sum(sizes) + len(sizes) < _LONGEST_PATH


def members(annotation: Any) -> set[Any]:
    """Return the types of a union, or the type itself."""
    if get_origin(annotation) in {Union, types.UnionType}:
        return set(get_args(annotation))
    return {annotation}


Mark = TypeVar("Mark")


def _mark(kinds: set[Any], type_: type[Mark]) -> Mark | None:
    """Return the mark of this type that annotates one of the types, or None."""
    marks = (mark for kind in kinds if get_origin(kind) is Annotated for mark in get_args(kind)[1:])
    return next((mark for mark in marks if isinstance(mark, type_)), None)


def _from_text(text: str, parameter: Parameter, kinds: set[Any]) -> Any:
    annotation = parameter.annotation
    if text in _NULLS and type(None) in kinds:
        return None
    if annotation in {NO_DEFAULT, Any}:
        return _typed_yaml(text, parameter.name)
    choices = [choice for member in kinds if get_origin(member) is Literal for choice in get_args(member)]
    if choices or kinds & {str, Path, Secret}:
        return next((choice for choice in choices if str(choice) == text), text)
    origins = {get_origin(member) or member for member in kinds}
    if list in origins and not _is_flow_list(text, kinds):
        return [item.strip() for item in text.split(",")] if text.strip() else []
    if origins & {list, dict}:
        return _typed_yaml(text, parameter.name) if _has_any(annotation) else _yaml(text)
    return text


def _is_flow_list(text: str, kinds: set[Any]) -> bool:
    if not text.lstrip().startswith("["):
        return False
    # `[::1]:22` is a host, not a list.
    return list[Address] not in kinds or isinstance(_yaml(text), list)


def _typed_yaml(text: str, name: str) -> Any:
    """Parse the value of an option as YAML. A warning names each unquoted scalar that may be meant as text."""
    import yaml

    from toolbox.ground.model import yaml_scalars

    try:
        value = yaml.load(text, Loader=yaml_scalars.Loader)  # noqa: S506  # a safe loader
        scalars = yaml_scalars.ambiguous_in(text)
    except yaml.YAMLError:
        return text
    for scalar in scalars:
        log.warning("--%s, column %d: %s", name, scalar.column, scalar)
    return _join_surrogates(value)


def _yaml(text: str) -> Any:
    """Parse a text as YAML in which all scalars stay strings, which pydantic converts later."""
    import yaml

    try:
        return _join_surrogates(yaml.load(text, Loader=yaml.BaseLoader))  # noqa: S506  # a safe loader
    except yaml.YAMLError:
        return text


def _join_surrogates(value: Any) -> Any:
    """Join surrogate pairs into characters. PyYAML leaves JSON escapes as pairs, which UTF-8 cannot encode."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_join_surrogates(key): _join_surrogates(item) for key, item in value.items()}
    return [_join_surrogates(item) for item in value] if isinstance(value, list) else value


def _has_any(annotation: Any) -> bool:
    return _mentions(annotation, Any, list, dict)


def _mentions(annotation: Any, *types: Any) -> bool:
    """Return whether an annotation is one of these types, or contains one as a type argument."""
    return annotation in types or any(_mentions(argument, *types) for argument in get_args(annotation))


def _adapter(annotation: Any) -> TypeAdapter[Any]:
    from pydantic import ConfigDict, TypeAdapter

    config = ConfigDict(coerce_numbers_to_str=True, arbitrary_types_allowed=True, allow_inf_nan=False)
    return TypeAdapter(annotation, config=config)
