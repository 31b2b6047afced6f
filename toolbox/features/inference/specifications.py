"""The specifications of the block `tests` of the project `inference`: models, their configs, and their case files.

A config is a way to serve a model: a framework (an entry of the block `frameworks`, which describes a server) and its
parameters. Each model with each of its configs becomes a cell.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, RootModel, field_validator, model_validator

from toolbox.features.inference.case_files import Comparators
from toolbox.features.inference.client.server_addresses import GrpcAddress
from toolbox.features.inference.load_steps import Load
from toolbox.features.inference.suites import ServerProtocol
from toolbox.ground.model.names import is_name
from toolbox.ground.model.nearest import did_you_mean
from toolbox.ground.model.pod_resources import Resources
from toolbox.ground.model.quantities import AnySeconds

_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")
_OF_WORKER: Final = ("port", "grpc_port")
"""The placeholders that the worker on the target fills."""
_SHORT: Final = ("deployment_framework", "dtype_str")
"""The parameters that the name of a config shows without their names."""

DataType = Literal["float32", "float16", "bfloat16"]
Size = Annotated[int, Field(ge=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Config(_Strict):
    """A way to serve a model. The fields up to `quantize` are parameters of TGIS, and have its defaults.

    Args:
        name: the name in the names of cells; by default the framework, the data type, and each other parameter that is
            given.
        deployment_framework: the name of an entry of the block `frameworks`.
        dtype_str: the data type of the parameters of the model; None for the default of the server.
        num_shard: the number of processes that share the model, each with a GPU of its own.
        flash_attention: whether to use flash attention, which needs a GPU.
        pt2_compile: whether to compile the model with PyTorch 2.
        quantize: how to quantise the parameters of the model, which needs a GPU.
        resources: the requests and limits of a pod of Kubernetes.
    """

    name: Annotated[str, AfterValidator(is_name)] | None = None
    deployment_framework: str = Field(min_length=1)
    dtype_str: DataType | None = None
    num_shard: Size = 1
    max_batch_size: Size = 12
    max_sequence_length: Size = 2048
    max_new_tokens: Size = 1024
    max_concurrent_requests: Size | None = None
    max_batch_weight: Size | None = None
    max_prefill_weight: Size | None = None
    max_waiting_tokens: Size | None = None
    revision: str | None = None
    flash_attention: bool = False
    pt2_compile: bool = False
    quantize: Literal["bitsandbytes", "gptq"] | None = None
    resources: Resources = Resources()

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if self.max_new_tokens >= self.max_sequence_length:
            raise ValueError(
                f"`max_new_tokens` {self.max_new_tokens} leaves no room for an input in "
                f"`max_sequence_length` {self.max_sequence_length}"
            )
        return self

    @property
    def label(self) -> str:
        """The name of the config."""
        return self.name or _label(self)

    @property
    def settings(self) -> dict[str, Any]:
        """The fields that the config gives, and its name. They identify the config."""
        given = self.model_dump(mode="json", exclude_unset=True)
        return {**given, "name": self.label}

    @property
    def gpus(self) -> int:
        """The number of whole GPUs."""
        return self.resources.gpu if isinstance(self.resources.gpu, int) else 0

    @property
    def has_slices(self) -> bool:
        """Whether the config has MIG slices in place of whole GPUs."""
        return isinstance(self.resources.gpu, dict) and any(self.resources.gpu.values())

    def placeholders(self) -> dict[str, str]:
        """Return the text for each placeholder of a framework. Parameters that are None are left out."""
        parameters = self.model_dump(mode="json", exclude={"name", "resources"})
        return {name: _text(value) for name, value in parameters.items() if value is not None}


class Specification(_Strict):
    """A model, the configs to serve it with, and the cases and the load that each of these servers gets.

    Args:
        model: the name or the path of the model.
        cases: the case files, relative to the directory that contains `config/`; None for a load only.
        load: the load; None if the servers get no load.
        compare: the comparators of cases without a field `compare`; None for the default comparators of each case.
        streams: whether cases with one text are also sent as a stream.
    """

    model: str = Field(min_length=1)
    configs: list[Config] = Field(min_length=1)
    cases: list[Annotated[str, Field(min_length=1)]] | None = Field(default=None, min_length=1)
    load: Load | None = None
    compare: Comparators | None = None
    streams: bool = True

    @model_validator(mode="after")
    def _has_cases(self) -> Self:
        if self.cases is None and self.load is None:
            raise ValueError("a specification needs `cases`, `load` or both")
        if self.cases is None and self.load is not None and self.load.cases is None:
            raise ValueError("the specification has no `cases`, so `load` needs `cases`")
        return self

    @field_validator("configs")
    @classmethod
    def _names_are_distinct(cls, configs: list[Config]) -> list[Config]:
        counts = Counter(config.label for config in configs)
        if repeated := [name for name, count in counts.items() if count > 1]:
            raise ValueError(f"several configs have the name {repeated[0]}: give each of them a `name` of its own")
        return configs


class Specifications(RootModel[Annotated[list[Specification], Field(min_length=1)]]):
    """The block `tests`."""

    @model_validator(mode="after")
    def _models_are_distinct(self) -> Self:
        counts = Counter(each.model for each in self.root)
        if repeated := [name for name, count in counts.items() if count > 1]:
            raise ValueError(f"several specifications have the model {repeated[0]}: list all configs and cases in one")
        return self


class Ready(_Strict):
    """When a server is ready.

    Args:
        timeout: the time in seconds after which a server that is not ready is an error of the infrastructure.
        path: the HTTP path whose status 200 shows that the server is ready; None for the list of models.
    """

    timeout: AnySeconds = Field(default=600, gt=0, allow_inf_nan=False)
    path: str | None = Field(default=None, pattern=r"^/")


class Framework(_Strict):
    """A server. In `command`, `arguments`, `env`, `url`, `grpc` and `image`, `{model}`, `{image_tag}` and the name of a
    parameter in braces stand for the value of the config; `{port}` and `{grpc_port}` stand for free ports.

    Args:
        command: the command that starts the server; None for a server that is running.
        arguments: further arguments, by parameter. They are added if the config gives the parameter a value other than
            null and false.
        env: the environment variables of the server.
        url: the address of a running server with the API of OpenAI.
        grpc: HOST:PORT of a running server of `fmaas.GenerationService`, or grpcs://HOST:PORT with TLS.
        ca_file: a file on the target with the certificates of the authorities (PEM) that are trusted with https and
            grpcs; None for those of the system.
        protocols: the protocols of the server, the main protocol first.
        image: the image of the pods; None for that of the target.
        dtypes_on_cpu: the data types that work without a GPU.
        shards_share: whether shards need no GPUs of their own, for example because they are processes on a CPU.
        api_key_variable: the environment variable of the workload that contains the API key of the server.
    """

    command: list[str] | None = None
    arguments: dict[str, list[str]] = {}
    env: dict[str, str] = {}
    url: str | None = None
    grpc: str | None = None
    ca_file: str | None = None
    ready: Ready = Ready()
    protocols: list[ServerProtocol] = Field(min_length=1)
    image: str | None = None
    dtypes_on_cpu: list[DataType] = ["float32"]
    shards_share: bool = False
    api_key_variable: str | None = None

    @field_validator("grpc")
    @classmethod
    def _is_address(cls, grpc: str | None) -> str | None:
        if grpc is not None:
            GrpcAddress.parsed(grpc)
        return grpc

    @model_validator(mode="after")
    def _is_secure(self) -> Self:
        if self.grpc and self.api_key_variable:
            GrpcAddress.parsed(self.grpc).check_key()
        has_tls = (self.url or "").startswith("https://") or (self.grpc or "").startswith("grpcs://")
        if self.ca_file is not None and not has_tls:
            raise ValueError("`ca_file` needs a `url` with https:// or a `grpc` with grpcs://")
        return self

    @model_validator(mode="after")
    def _can_be_reached(self) -> Self:
        if not (self.command or self.url or self.grpc):
            raise ValueError("a framework needs a `command`, a `url` or a `grpc`")
        texts = [*(self.command or ()), *self.env.values()]
        for protocol, address, port in (("openai", self.url, "{port}"), ("fmaas", self.grpc, "{grpc_port}")):
            has_address = bool(address) and port not in (address or "")
            if protocol in self.protocols and not has_address and not any(port in text for text in texts):
                field = "url" if protocol == "openai" else "grpc"
                raise ValueError(f"the protocol {protocol} needs `{port}` in the `command`, or a `{field}`")
        known = {"model", "image_tag", *_OF_WORKER, *Config.model_fields} - {"name", "resources"}
        texts += [
            *(text for words in self.arguments.values() for text in words),
            *filter(None, [self.image, self.url, self.grpc]),
        ]
        for name in [*self.arguments, *(each for text in texts for each in _PLACEHOLDER.findall(text))]:
            if name not in known:
                raise ValueError(f"no parameter `{name}`: {did_you_mean(name, known, label='parameters')}")
        return self


class Frameworks(RootModel[dict[str, Framework]]):
    """The block `frameworks`."""

    is_open: ClassVar[bool] = True


def faults(config: Config, frameworks: Mapping[str, Framework]) -> Iterator[tuple[str, str]]:
    """Yield what makes a config impossible: the name of a field, and what is wrong with it."""
    name = config.deployment_framework
    if name not in frameworks:
        hint = did_you_mean(name, frameworks, label="frameworks")
        yield "deployment_framework", f"unknown framework `{name}`: {hint}"
        return
    framework = frameworks[name]
    for missing in sorted(_needed(framework, config) - {"model", "image_tag", *_OF_WORKER, *config.placeholders()}):
        yield "deployment_framework", f"`{name}` needs the parameter `{missing}`, which the config does not give"
    needs_gpus = config.num_shard > 1 and not framework.shards_share
    if needs_gpus and config.has_slices:
        yield "num_shard", f"{config.num_shard} shards need {config.num_shard} whole GPUs, not MIG slices"
    elif needs_gpus and config.num_shard > config.gpus:
        yield (
            "num_shard",
            f"{config.num_shard} shards need {config.num_shard} GPUs, but `resources.gpu` is {config.gpus}",
        )
    if config.gpus or config.has_slices:
        return
    if config.flash_attention:
        yield "flash_attention", "flash attention needs a GPU, but `resources.gpu` is 0 or null"
    if config.quantize is not None:
        yield "quantize", f"{config.quantize} needs a GPU, but `resources.gpu` is 0 or null"
    if config.dtype_str is not None and config.dtype_str not in framework.dtypes_on_cpu:
        works = ", ".join(framework.dtypes_on_cpu)
        yield "dtype_str", f"{name} has only {works} without a GPU, and `resources.gpu` is 0 or null"


def server(framework: Framework, config: Config, model: str) -> dict[str, Any]:
    """Return the description of a server for the worker on the target."""
    values = {**config.placeholders(), "model": model}
    command = [_filled(word, values) for word in [*(framework.command or ()), *_arguments(framework, config)]]
    return {
        "command": command or None,
        "url": framework.url and _filled(framework.url, values),
        "grpc": framework.grpc and _filled(framework.grpc, values),
        "ca_file": framework.ca_file,
        "ready": framework.ready.model_dump(exclude_none=True),
        "env": {name: _filled(text, values) for name, text in framework.env.items()},
        "model": model,
        "api_key_variable": framework.api_key_variable,
    }


def pod(framework: Framework, config: Config, image_tag: str | None, *, is_needed: bool = True) -> dict[str, Any]:
    """Return the fields of the pod of a cell.

    Args:
        is_needed: whether a cell may run in a pod. Without pods, the image needs no tag.

    Raises:
        ValueError: the image needs a tag, and there is none.
    """
    resources = {"resources": config.resources.model_dump(mode="json", exclude_unset=True)}
    lacks_tag = "{image_tag}" in (framework.image or "") and image_tag is None
    if framework.image is None or (lacks_tag and not is_needed):
        return resources
    if lacks_tag:
        raise ValueError(f"the image {framework.image} needs a tag: `inference run --image_tag=TAG`")
    return {**resources, "image": _filled(framework.image, {**config.placeholders(), "image_tag": image_tag or ""})}


def _arguments(framework: Framework, config: Config) -> list[str]:
    """Return the further arguments of the command, with their placeholders."""
    parameters = config.model_dump()
    given = [words for name, words in framework.arguments.items() if parameters.get(name) not in (None, False)]
    return [word for words in given for word in words]


def _needed(framework: Framework, config: Config) -> set[str]:
    """Return the names of the placeholders in the description of a server."""
    texts = [*(framework.command or ()), *_arguments(framework, config), *framework.env.values()]
    texts += filter(None, [framework.url, framework.grpc, framework.image])
    return {name for text in texts for name in _PLACEHOLDER.findall(text)}


def _label(config: Config) -> str:
    """Return the name of a config: its framework, its data type, and the other parameters that are given."""
    given = config.model_dump(mode="json", exclude_unset=True, exclude={"name", "resources"})
    parts = [_text(given[name]) for name in _SHORT if given.get(name) is not None]
    for name, value in given.items():
        if name not in _SHORT and value not in (None, False):
            parts.append(name if value is True else f"{name}={_text(value)}")
    if config.resources.model_fields_set:
        gpu = config.resources.gpu
        parts += ["cpu"] if not gpu else [f"gpu={gpu}"] if gpu != config.num_shard and isinstance(gpu, int) else []
        parts += [f"{name}={number}" for name, number in gpu.items()] if isinstance(gpu, dict) else []
    return "-".join(parts)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _filled(text: str, values: Mapping[str, str]) -> str:
    """Replace the placeholders. Those of the worker, and those of parameters without a value, stay."""
    return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), text)
