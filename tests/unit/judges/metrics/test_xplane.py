"""The source `xplane` reads step times from a profile, which these tests encode field by field.

`data/jax_h200.xplane.pb` is a profile of 30 training steps with JAX 0.11 on an NVIDIA H200, without the fields that
Topgallant does not read, and without most kinds of events.
"""

from pathlib import Path
from typing import Any

import pytest

from toolbox.judges.metrics.xplane import Source

SECOND = 10**12  # in picoseconds
DATA = Path(__file__).with_name("data")


def varint(value: int) -> bytes:
    """Return a number in seven bits per byte, the lowest first; the top bit is set if more bytes follow."""
    head, low = value >> 7, value & 0x7F
    return bytes([low | 0x80]) + varint(head) if head else bytes([low])


def field(number: int, value: int | str | bytes) -> bytes:
    """Return one field of a message: a number, or a text or a nested message with its length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def event(start: float, **more: int) -> bytes:
    """Return an event that starts `start` seconds after its line."""
    counts = field(5, more["num_occurrences"]) if more else b""
    return field(4, field(1, 1) + field(2, round(start * SECOND)) + field(3, 7) + counts)


def line(*starts: float, name: str = "XLA Modules", timestamp_ns: int = 1_795_225_623_000_000_000) -> bytes:
    """Return a line with an event at each start, in seconds."""
    return field(3, field(1, 9) + field(2, name) + field(3, timestamp_ns) + b"".join(map(event, starts)))


def plane(*lines: bytes, name: str = "/device:TPU:0") -> bytes:
    """Return a plane of the profile with these lines."""
    return field(1, field(1, 3) + field(2, name) + b"".join(lines) + field(4, field(1, 1) + field(2, b"\x12\x01x")))


def read(directory: Path, *planes: bytes, **spec: Any) -> float | tuple[float, ...]:
    """Return the metric that a profile with these planes gives."""
    file = directory / "profile" / "plugins" / "host.xplane.pb"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"".join(planes) + field(4, "host"))
    return Source(**spec).read(directory)


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        ({}, 1.0),
        ({"aggregate": "each"}, (3.0, 1.0, 0.5, 1.0)),
        ({"aggregate": "each", "warmup": 3}, (1.0,)),
        ({"aggregate": "max", "warmup": 1}, 1.0),
        ({"aggregate": "mean"}, 1.375),
        ({"aggregate": "count"}, 4.0),
    ],
)
def test_a_step_time_is_the_seconds_between_two_starts(tmp_path: Path, spec: dict[str, Any], value: Any) -> None:
    steps = line(0, 5.5, 3, 4, 4.5)  # events need not be in order
    assert read(tmp_path, plane(name="/host:CPU"), plane(line(1, name="Steps"), steps), **spec) == value


def test_picoseconds_are_not_lost_in_a_long_profile(tmp_path: Path) -> None:
    events = b"".join(field(4, field(2, 10**18 + count)) for count in (0, 3))
    assert read(tmp_path, plane(field(3, field(2, "XLA Modules") + events))) == 3e-12


def test_another_line_of_another_plane_may_be_named(tmp_path: Path) -> None:
    host = plane(line(0, 0.25, name="train steps"), name="/host:CPU")
    assert read(tmp_path, host, plane(line(0, 2)), plane="/host:CPU", line="train steps") == 0.25


def test_an_aggregated_event_has_no_start(tmp_path: Path) -> None:
    events = event(0) + event(0, num_occurrences=9) + event(2)
    assert read(tmp_path, plane(field(3, field(2, "XLA Modules") + events))) == 2


def named(*events: tuple[str, float]) -> bytes:
    """Return a plane with one line, which has events with these names and starts."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(name for name, _ in events), start=1)}
    starts = b"".join(field(4, field(1, numbers[name]) + field(2, round(start * SECOND))) for name, start in events)
    metadata = b"".join(
        field(4, field(1, number) + field(2, field(1, number) + field(2, name))) for name, number in numbers.items()
    )
    return field(1, field(2, "/device:TPU:0") + field(3, field(2, "XLA Modules") + starts) + metadata)


TRAINING = [("jit_train_step(123)", start) for start in (0, 1, 2, 6, 7)]
EVALUATION = [("jit_eval_step(456)", start) for start in (2.9, 3.1, 3.3, 3.5)]
REBUILT = [("jit_train_step(789)", start) for start in (8, 9)]


@pytest.mark.parametrize(
    ("events", "event", "steps"),
    [
        (TRAINING, None, (1, 1, 4, 1)),
        (TRAINING + EVALUATION, "jit_train_step", (1, 1, 4, 1)),
        (TRAINING + EVALUATION, "jit_train_step(123)", (1, 1, 4, 1)),
        (TRAINING + EVALUATION, "jit_train*", (1, 1, 4, 1)),
        (TRAINING + EVALUATION, "*train*(123)", (1, 1, 4, 1)),
        (TRAINING + EVALUATION + REBUILT, "jit_train_step", (1, 1, 4, 1, 1, 1)),
        (TRAINING + EVALUATION + REBUILT, "jit_train_step(789)", (1,)),
        ([("a[0]", 0), ("a[0]", 2), ("a0", 0)], "a[0]", (2,)),
        ([("a", 0), ("a(b)", 1), ("a", 2)], "a", (2,)),
    ],
)
def test_the_steps_are_the_events_of_one_name(tmp_path: Path, events: Any, event: str | None, steps: Any) -> None:
    assert read(tmp_path, named(*events), event=event, aggregate="each") == steps


@pytest.mark.parametrize(
    ("events", "event", "message"),
    [
        (
            TRAINING + EVALUATION,
            None,
            (
                "has events of several names: select one with `event`: jit_train_step(123) (5 times), "
                "jit_eval_step(456) (4 times)"
            ),
        ),
        (
            TRAINING + REBUILT,
            None,
            (
                "has events of several names: select one with `event`: jit_train_step(123) (5 times), "
                "jit_train_step(789) (2 times)"
            ),
        ),
        (
            [*TRAINING, *EVALUATION, ("copy", 1)],
            "jit_*",
            (
                "has events of several names: select one with `event`: jit_train_step(123) (5 times), "
                "jit_eval_step(456) (4 times)"
            ),
        ),
        (
            TRAINING + EVALUATION,
            "train",
            "has no event `train`; the events are jit_train_step(123) (5 times), jit_eval_step(456) (4 times)",
        ),
        (
            [("a", 1), ("a", 2), ("", 3)],
            None,
            "several names: select one with `event`: a (2 times), without a name (once)",
        ),
        ([("a", 1), ("b", 2), ("b", 3)], "a", "has 1 events, but at least 2 are needed"),
    ],
)
def test_a_line_with_events_of_several_names_is_refused_with_the_names(
    tmp_path: Path, events: Any, event: str | None, message: str
) -> None:
    with pytest.raises(ValueError, match=PROFILE) as caught:
        read(tmp_path, named(*events), event=event)
    assert str(caught.value).endswith(message)


def test_a_name_that_is_not_utf_8_is_accepted(tmp_path: Path) -> None:
    metadata = field(4, field(1, 1) + field(2, field(2, b"\xff")))
    events = event(0) + event(1)
    content = field(1, field(2, "/device:TPU:0") + field(3, field(2, "XLA Modules") + events) + metadata)
    assert read(tmp_path, content) == 1


PROFILE = "profile/plugins/host.xplane.pb"


@pytest.mark.parametrize(
    ("planes", "message"),
    [
        ([], f"{PROFILE} has 0 planes `/device:TPU:0`, but must have exactly 1; there are no planes"),
        (
            [plane(name="b"), plane(name="/device:TPU:1")],
            f"{PROFILE} has 0 planes `/device:TPU:0`, but must have exactly 1; the planes are /device:TPU:1, b",
        ),
        (
            [plane(line(1, 2))] * 2,
            f"{PROFILE} has 2 planes `/device:TPU:0`, but must have exactly 1; the planes are /device:TPU:0",
        ),
        (
            [plane(line(1, name="Steps"))],
            f"`/device:TPU:0` of {PROFILE} has 0 lines `XLA Modules`, but must have exactly 1; the lines are Steps",
        ),
        (
            [plane(line(1, 2), line(1, 2))],
            (
                f"`/device:TPU:0` of {PROFILE} has 2 lines `XLA Modules`, but must have exactly 1; "
                "the lines are XLA Modules"
            ),
        ),
        ([plane(line(1))], f"`XLA Modules` of {PROFILE} has 1 events, but at least 2 are needed"),
        ([plane(line())], f"`XLA Modules` of {PROFILE} has 0 events, but at least 2 are needed"),
    ],
)
def test_a_missing_or_repeated_plane_or_line_is_reported_with_all_names(
    tmp_path: Path, planes: list[bytes], message: str
) -> None:
    with pytest.raises(ValueError, match=PROFILE) as caught:
        read(tmp_path, *planes)
    assert str(caught.value) == message


def test_a_warmup_that_leaves_no_interval_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"`XLA Modules` of .*: 2 numbers were found, and the warm-up of 2 removes all"
    ):
        read(tmp_path, plane(line(1, 2, 3)), warmup=2)


@pytest.mark.parametrize("content", [b"\xff" * 20, b"\x0a\x05abc", b"\x0a\x03\x12\x01\xff"])
def test_a_file_that_is_not_a_profile_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.xplane.pb").write_bytes(content)
    with pytest.raises(ValueError, match=r"^a\.xplane\.pb is not an XSpace profile: "):
        Source().read(tmp_path)


@pytest.mark.parametrize("content", [b"", b"(some text"])
def test_a_file_without_planes_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.xplane.pb").write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.xplane\.pb"):
        Source().read(tmp_path)


def test_exactly_one_profile_must_match(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^0 files match \*\*/\*\.xplane\.pb, but exactly 1 must match$"):
        Source().read(tmp_path)
    for name in ("a", "b"):
        (tmp_path / f"{name}.xplane.pb").touch()
    with pytest.raises(
        ValueError, match=r"^2 files match .* must match; the matching files are a\.xplane\.pb, b\.xplane\.pb$"
    ):
        Source().read(tmp_path)


@pytest.mark.parametrize(
    ("plane_name", "line_name", "event_name"),
    [
        ("/host:CPU", "python3", "train"),  # annotated by the workload, with `jax.profiler.StepTraceAnnotation`
        ("/device:GPU:0", "Stream #14(Memset,Compute)", "wrapped_tanh"),  # a kernel that runs once per step
    ],
)
def test_a_recorded_profile_of_a_gpu_has_the_step_time(plane_name: str, line_name: str, event_name: str) -> None:
    source = {"plane": plane_name, "line": line_name, "event": event_name}
    assert Source(**source, aggregate="count").read(DATA) == 29
    # The workload itself measured a median of 1.457 ms for the steps without the times between them.
    assert Source(**source).read(DATA) == pytest.approx(0.001457, rel=0.01)


def test_a_profile_of_a_gpu_has_no_line_of_modules() -> None:
    with pytest.raises(ValueError, match=r"0 planes `/device:TPU:0`, .* the planes are /device:GPU:0, /host:CPU, "):
        Source().read(DATA)
    with pytest.raises(ValueError, match=r"0 lines `XLA Modules`, .* the lines are Stream #14"):
        Source(plane="/device:GPU:0").read(DATA)
