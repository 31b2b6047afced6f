"""
The forward pass of the model with a cache of keys and values, for all of its heads or for those of one shard.

The values of all sequences have the shape (sequences, tokens, width): a part of one prompt, or the last token of each
running sequence. So numpy computes a separate matrix product for each sequence, and the bits of a result
do not depend on the other sequences.

`dtype_str` is the type of parameters, cache and activations. With float16, numpy multiplies matrices with sums in
float32 and rounds each element once; norms are computed in float32; all else is rounded to float16 after each
operation, also the sum of the parts of two shards. Probabilities are computed from the scores in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from transformer import Array, Arrays, Shape, Tokens, attention_weights, gelu, normalize

Sum = Callable[[Array], Array]  # adds up the parts of all shards
Attention = Callable[[int, Array], Array]

DTYPES = ("float32", "float16")


class ModelError(Exception):
    """The model cannot be served as requested."""


class Model:
    """
    One shard of a model.

    Args:
        shape: the sizes of the whole model.
        parameters: the parameters of this shard (see `shard`).
        slots: number of sequences in the cache.
        length: number of tokens of a sequence in the cache.
        add_up: adds the parts of the other shards to an array; called twice per block.
    """

    def __init__(
        self, shape: Shape, parameters: Arrays, *, slots: int, length: int, add_up: Sum = lambda part: part
    ) -> None:
        self._shape = shape
        self._parameters = parameters
        self._add_up = add_up
        size = shape.width // shape.heads
        self._heads = parameters["0.attention.output.weight"].shape[0] // size
        cache = (slots, shape.layers, self._heads, length, size)
        dtype = parameters["tokens"].dtype
        self._keys, self._values = np.zeros(cache, dtype), np.zeros(cache, dtype)

    def prefill(self, slot: int, tokens: Sequence[int], start: int = 0) -> Array:
        """Read a part of a sequence into a slot, from a position on, and return the scores after each of its tokens."""
        end = start + len(tokens)
        future = np.triu(np.full((len(tokens), end), -np.inf, self._keys.dtype), k=start + 1)

        def attention(block: int, inputs: Array) -> Array:
            return self._attend(slot, block, self._split(inputs), start=start, mask=future)[np.newaxis]

        scores: Array = self._forward(np.array([tokens]), np.arange(start, end)[np.newaxis], attention)[0]
        return scores

    def decode(self, slots: Sequence[int], tokens: Sequence[int], positions: Sequence[int]) -> Array:
        """Add a token to each of several sequences, and return the scores after each of these tokens."""

        def attention(block: int, inputs: Array) -> Array:
            vectors = self._split(inputs)
            return np.stack(
                [
                    self._attend(slot, block, vectors[:, row : row + 1], start=position)
                    for row, (slot, position) in enumerate(zip(slots, positions, strict=True))
                ]
            )

        return self._forward(np.array(tokens)[:, np.newaxis], np.array(positions)[:, np.newaxis], attention)[:, 0]

    def _attend(self, slot: int, block: int, vectors: Array, *, start: int, mask: Array | float = 0.0) -> Array:
        """Add keys and values to the cache, from a position on, and return what their queries gather from it."""
        queries, new_keys, new_values = vectors.swapaxes(1, 2)  # each of the shape (heads, tokens, vector)
        end = start + queries.shape[1]
        keys, values = self._keys[slot, block, :, :end], self._values[slot, block, :, :end]
        keys[:, start:], values[:, start:] = new_keys, new_values
        mixed = attention_weights(queries, keys, mask) @ values
        return mixed.swapaxes(0, 1).reshape(end - start, -1)

    def _split(self, inputs: Array) -> Array:
        """Return queries, keys and values, each of the shape (tokens, heads, vector)."""
        return inputs.reshape(-1, 3, self._heads, self._shape.width // self._shape.heads).swapaxes(0, 1)

    def _forward(self, tokens: Tokens, positions: Tokens, attention: Attention) -> Array:
        # An overflow of float16 appears in the scores, which the engine checks.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            x = self._parameters["tokens"][tokens] + self._parameters["positions"][positions]
            for block in range(self._shape.layers):
                inputs = self._linear(f"{block}.attention.inputs", self._norm(f"{block}.attention.norm", x))
                x = x + self._shared_linear(f"{block}.attention.output", attention(block, inputs))
                hidden, _ = gelu(self._linear(f"{block}.mlp.hidden", self._norm(f"{block}.mlp.norm", x)))
                x = x + self._shared_linear(f"{block}.mlp.output", hidden)
            return self._linear("head", self._norm("norm", x))

    def _norm(self, name: str, x: Array) -> Array:
        # In float16, squares of values above 256 would overflow, and the result would be 0 without any sign of it.
        unit, _ = normalize(x.astype(np.promote_types(x.dtype, np.float32), copy=False))
        return unit.astype(x.dtype, copy=False) * self._parameters[f"{name}.scale"] + self._parameters[f"{name}.shift"]

    def _linear(self, name: str, x: Array) -> Array:
        return x @ self._parameters[f"{name}.weight"] + self._parameters[f"{name}.bias"]

    def _shared_linear(self, name: str, x: Array) -> Array:
        """Multiply with the rows of this shard. Each shard adds the bias to the sum of all parts."""
        return self._add_up(x @ self._parameters[f"{name}.weight"]) + self._parameters[f"{name}.bias"]


def cast(parameters: Arrays, dtype: str) -> Arrays:
    """Return the parameters in another type. Raise ModelError if one of them is too large for it."""
    with np.errstate(over="ignore"):
        converted = {name: array.astype(dtype) for name, array in parameters.items()}
    for name, array in converted.items():
        if not np.isfinite(array).all():
            raise ModelError(f"the parameter {name} has values that are too large for {dtype}")
    return converted


def shard(shape: Shape, parameters: Arrays, *, rank: int, count: int) -> Arrays:
    """
    Return the parameters of one of `count` shards, as in Megatron-LM (Shoeybi et al., 2019).

    A shard has some of the heads and some columns of the hidden layers, with the rows of the layers after them. The
    rest is in every shard. Raise ModelError if the heads cannot be divided among the shards.
    """
    if shape.heads % count:
        raise ModelError(f"{shape.heads} heads cannot be divided among {count} shards")

    def part(name: str, array: Array) -> Array:
        if ".attention.inputs." in name:  # queries, keys and values are side by side
            heads = array.reshape(*array.shape[:-1], 3, count, -1)[..., rank, :]
            return heads.reshape(*array.shape[:-1], -1)
        if ".mlp.hidden." in name:
            return np.split(array, count, axis=-1)[rank]
        if name.endswith((".attention.output.weight", ".mlp.output.weight")):
            return np.split(array, count)[rank]
        return array

    return {name: np.ascontiguousarray(part(name, array)) for name, array in parameters.items()}
