"""A numeric framework computes a matrix product correctly on the device of the machine.

Promises: `device` (`cuda` or `cpu`) and `gpus`. Each installed framework of PyTorch, JAX and TensorFlow is tested. If
none of them is installed, NumPy is tested. A framework must use a GPU if `device` is `cuda`, or if the machine promises
GPUs and `device` is not `cpu`. The numbers are small integers, so that the exact product is the same on each device.
"""

from __future__ import annotations

import importlib.util
import os
import traceback
from typing import Any, Callable, Iterator, NamedTuple

_SIZE = 64
_GPU_NAMES = ("cuda", "gpu", "rocm")
_LEFT = [[float((row * column) % 7) for column in range(_SIZE)] for row in range(_SIZE)]
_RIGHT = [[float((row + column) % 5) for column in range(_SIZE)] for row in range(_SIZE)]
_PRODUCT = [
    [sum(_LEFT[row][k] * _RIGHT[k][column] for k in range(_SIZE)) for column in range(_SIZE)] for row in range(_SIZE)
]


class Computed(NamedTuple):
    """The product that a framework computed, and the name of the device."""

    product: list[list[float]]
    device: str


def check(promises: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Compute the product with each framework."""
    device = promises.get("device")
    needs_gpu = device == "cuda" or (device != "cpu" and bool(promises.get("gpus")))
    installed = [name for name in ("torch", "jax", "tensorflow") if _is_installed(name)]
    if not installed and device == "cuda":
        yield {"outcome": "failed", "expected": "a framework for GPUs", "found": "no PyTorch, JAX or TensorFlow"}
        return
    if not installed and not _is_installed("numpy"):
        yield {"outcome": "skipped", "message": "the runtime has no PyTorch, JAX, TensorFlow or NumPy"}
        return
    for name in installed:
        yield {"name": name, **_result(_FRAMEWORKS[name], needs_gpu=needs_gpu)}
    if not installed:
        yield {"name": "numpy", **_result(_numpy, needs_gpu=False)}


def _is_installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def _result(compute: Callable[[], Computed], *, needs_gpu: bool) -> dict[str, Any]:
    expected = "the exact product, on a GPU" if needs_gpu else "the exact product"
    try:
        computed = compute()
    except Exception as error:  # noqa: BLE001 - the exceptions of drivers and frameworks have no common class
        traceback.print_exc()
        return {"outcome": "failed", "expected": expected, "found": f"{type(error).__name__}: {error}"}
    is_exact = computed.product == _PRODUCT
    is_on_gpu = computed.device.lower().startswith(_GPU_NAMES)
    return {
        "outcome": "passed" if is_exact and (is_on_gpu or not needs_gpu) else "failed",
        "expected": expected,
        "found": f"{'the exact product' if is_exact else 'wrong numbers'}, on {computed.device}",
    }


def _torch() -> Computed:
    import torch  # type: ignore[import-not-found,unused-ignore]

    device = "cuda" if torch.cuda.is_available() else "cpu"
    product = torch.tensor(_LEFT, device=device) @ torch.tensor(_RIGHT, device=device)
    name = f"cuda ({torch.cuda.get_device_name()})" if device == "cuda" else device
    return Computed(product.cpu().tolist(), name)


def _jax() -> Computed:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # other programs use the GPU, too
    import jax  # type: ignore[import-not-found,unused-ignore]

    product = jax.numpy.matmul(jax.numpy.array(_LEFT), jax.numpy.array(_RIGHT), precision="highest")
    device = jax.devices()[0]
    return Computed(product.tolist(), f"{device.platform} ({device.device_kind})")


def _tensorflow() -> Computed:
    import tensorflow as tf  # type: ignore[import-not-found,import-untyped,unused-ignore]

    product = tf.matmul(tf.constant(_LEFT), tf.constant(_RIGHT))
    return Computed(product.numpy().tolist(), product.device.rpartition("device:")[2])


def _numpy() -> Computed:
    import numpy as np

    product = np.array(_LEFT, dtype=np.float32) @ np.array(_RIGHT, dtype=np.float32)
    return Computed(product.tolist(), "cpu")


_FRAMEWORKS: dict[str, Callable[[], Computed]] = {"torch": _torch, "jax": _jax, "tensorflow": _tensorflow}
