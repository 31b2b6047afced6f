"""
A character-level transformer language model in numpy, with hand-written gradients, and the optimizer Adam.

The model has embeddings and learned positions, then pre-norm blocks (causal self-attention, MLP with GELU), then a
last norm and a linear layer to the scores of the next character: GPT-2 (Radford et al., 2019) at toy size.

Activations are matrices of shape (batch * context, width), so that a layer needs one matrix product instead of one
per sequence. Each operation returns its output and a function `backward`, which takes the gradient of the loss with
respect to the output, stores the gradients of the operation's parameters, and returns the gradient with respect to
the input.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.floating[Any]]
Tokens = npt.NDArray[np.integer[Any]]
Arrays = dict[str, Array]  # parameters or their gradients, by name
Backward = Callable[[Array], Array]

NORM_EPSILON = 1e-5


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes of a model, named as in `Settings`; `vocabulary` is the number of distinct characters."""

    vocabulary: int
    layers: int
    width: int
    heads: int
    context: int


def parameter_sizes(shape: Shape) -> dict[str, tuple[int, ...]]:
    """Return the size of each parameter by its name."""
    width = shape.width
    linears = {"head": (width, shape.vocabulary)}
    norms = ["norm"]
    for block in range(shape.layers):
        norms += [f"{block}.attention.norm", f"{block}.mlp.norm"]
        linears[f"{block}.attention.inputs"] = (width, 3 * width)
        linears[f"{block}.attention.output"] = (width, width)
        linears[f"{block}.mlp.hidden"] = (width, 4 * width)
        linears[f"{block}.mlp.output"] = (4 * width, width)
    sizes: dict[str, tuple[int, ...]] = {"tokens": (shape.vocabulary, width), "positions": (shape.context, width)}
    for name, size in linears.items():
        sizes |= {f"{name}.weight": size, f"{name}.bias": size[1:]}
    for name in norms:
        sizes |= {f"{name}.scale": (width,), f"{name}.shift": (width,)}
    return sizes


def initial_parameters(shape: Shape, generator: np.random.Generator, precision: str) -> Arrays:
    """Return normally distributed weights (standard deviation 0.02 as in GPT-2), unit norms, and zero biases."""
    parameters: Arrays = {}
    for name, size in parameter_sizes(shape).items():
        if name.endswith((".bias", ".shift")):
            parameters[name] = np.zeros(size, precision)
        elif name.endswith(".scale"):
            parameters[name] = np.ones(size, precision)
        else:
            parameters[name] = generator.normal(0.0, 0.02, size).astype(precision)
    return parameters


class Transformer:
    """A model with given parameters, which this class does not change."""

    def __init__(self, shape: Shape, parameters: Arrays) -> None:
        self.shape = shape
        self.parameters = parameters
        self._gradients: Arrays = {}

    def loss_and_gradients(self, inputs: Tokens, targets: Tokens) -> tuple[float, Arrays]:
        """
        Return the mean cross-entropy of predicting `targets`, in nats per character, and its gradients by parameter.

        Args:
            inputs: characters as indices into the vocabulary, of shape (batch, context).
            targets: the next character after each input, of the same shape.
        """
        self._gradients = {}
        x, embed_backward = self._embed(inputs)
        backwards = [embed_backward]
        for block in range(self.shape.layers):
            for branch in (self._attention, self._mlp):
                change, backward = branch(block, x)
                x = x + change
                backwards.append(_residual(backward))
        x, backward = self._norm("norm", x)
        backwards.append(backward)
        scores, backward = self._linear("head", x)
        backwards.append(backward)
        loss, gradient = cross_entropy(scores, targets.reshape(-1))
        for backward in reversed(backwards):
            gradient = backward(gradient)
        return loss, self._gradients

    def _embed(self, inputs: Tokens) -> tuple[Array, Backward]:
        tokens, width = self.parameters["tokens"], self.shape.width

        def backward(gradient: Array) -> Array:
            # A product with one-hot rows sums the rows of each character, faster than np.add.at.
            one_hot = (inputs.reshape(-1, 1) == np.arange(len(tokens))).astype(gradient.dtype)
            self._gradients["tokens"] = one_hot.T @ gradient
            self._gradients["positions"] = gradient.reshape(len(inputs), -1, width).sum(axis=0)
            return gradient  # the embedding is the first layer

        return (tokens[inputs] + self.parameters["positions"]).reshape(-1, width), backward

    def _attention(self, block: int, x: Array) -> tuple[Array, Backward]:
        name = f"{block}.attention"
        normed, norm_backward = self._norm(f"{name}.norm", x)
        inputs, inputs_backward = self._linear(f"{name}.inputs", normed)
        mixed, mix_backward = causal_attention(inputs, self.shape.context, self.shape.heads)
        output, output_backward = self._linear(f"{name}.output", mixed)

        def backward(gradient: Array) -> Array:
            return norm_backward(inputs_backward(mix_backward(output_backward(gradient))))

        return output, backward

    def _mlp(self, block: int, x: Array) -> tuple[Array, Backward]:
        name = f"{block}.mlp"
        normed, norm_backward = self._norm(f"{name}.norm", x)
        hidden, hidden_backward = self._linear(f"{name}.hidden", normed)
        active, gelu_backward = gelu(hidden)
        output, output_backward = self._linear(f"{name}.output", active)

        def backward(gradient: Array) -> Array:
            return norm_backward(hidden_backward(gelu_backward(output_backward(gradient))))

        return output, backward

    def _linear(self, name: str, x: Array) -> tuple[Array, Backward]:
        weight = self.parameters[f"{name}.weight"]

        def backward(gradient: Array) -> Array:
            self._gradients[f"{name}.weight"] = x.T @ gradient
            self._gradients[f"{name}.bias"] = gradient.sum(axis=0)
            return gradient @ weight.T

        return x @ weight + self.parameters[f"{name}.bias"], backward

    def _norm(self, name: str, x: Array) -> tuple[Array, Backward]:
        scale = self.parameters[f"{name}.scale"]
        unit, deviation = normalize(x)

        def backward(gradient: Array) -> Array:
            self._gradients[f"{name}.scale"] = (gradient * unit).sum(axis=0)
            self._gradients[f"{name}.shift"] = gradient.sum(axis=0)
            by_unit = gradient * scale
            along_unit = (by_unit * unit).mean(axis=1, keepdims=True)
            change: Array = (by_unit - by_unit.mean(axis=1, keepdims=True) - unit * along_unit) / deviation
            return change

        return unit * scale + self.parameters[f"{name}.shift"], backward


def normalize(x: Array) -> tuple[Array, Array]:
    """Return `x` with mean 0 and variance 1 along the last axis, and the standard deviations before."""
    centred = x - x.mean(axis=-1, keepdims=True)
    deviation: Array = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + NORM_EPSILON)
    return centred / deviation, deviation


def _residual(branch_backward: Backward) -> Backward:
    """Return the function `backward` of `x + branch(x)`."""
    return lambda gradient: gradient + branch_backward(gradient)


def causal_attention(inputs: Array, context: int, heads: int) -> tuple[Array, Backward]:
    """
    Compute multi-head attention in which a token sees itself and the tokens before it (Vaswani et al., 2017).

    Args:
        inputs: queries, keys and values side by side, of shape (batch * context, 3 * width).
        context: number of tokens per sequence.
        heads: number of parts into which the width is split.
    """
    width = inputs.shape[1] // 3
    scale = 1 / math.sqrt(width // heads)
    # The new axes are: query, key or value; batch; head; token; vector.
    split = inputs.reshape(-1, context, 3, heads, width // heads).transpose(2, 0, 3, 1, 4)
    queries, keys, values = np.ascontiguousarray(split)
    future = np.triu(np.full((context, context), -np.inf, inputs.dtype), k=1)
    weights = attention_weights(queries, keys, future)

    def backward(gradient: Array) -> Array:
        by_output = gradient.reshape(-1, context, heads, width // heads).transpose(0, 2, 1, 3)
        by_weights = by_output @ values.swapaxes(-1, -2)
        by_scores = weights * (by_weights - (by_weights * weights).sum(axis=-1, keepdims=True)) * scale
        by_values = weights.swapaxes(-1, -2) @ by_output
        by_inputs = np.stack([by_scores @ keys, by_scores.swapaxes(-1, -2) @ queries, by_values])
        return by_inputs.transpose(1, 3, 0, 2, 4).reshape(-1, 3 * width)

    return (weights @ values).transpose(0, 2, 1, 3).reshape(-1, width), backward


def attention_weights(queries: Array, keys: Array, mask: Array | float = 0.0) -> Array:
    """Return how much each query attends to each key. The mask is added to the scores before the softmax."""
    return softmax(queries @ keys.swapaxes(-1, -2) * (1 / math.sqrt(queries.shape[-1])) + mask)


def gelu(x: Array) -> tuple[Array, Backward]:
    """Compute GELU (Hendrycks, Gimpel, 2016), as x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))."""
    slope, cubic = math.sqrt(2 / math.pi), 0.044715
    squared = x * x  # x**3 would call pow, which is ten times slower
    tanh: Array = np.tanh(slope * x * (1 + cubic * squared))

    def backward(gradient: Array) -> Array:
        by_tanh = x * (1 - tanh * tanh) * slope * (1 + 3 * cubic * squared)
        by_x: Array = 0.5 * (1 + tanh + by_tanh)
        return gradient * by_x

    return 0.5 * x * (1 + tanh), backward


def softmax(scores: Array) -> Array:
    """Return probabilities along the last axis. The largest score is subtracted first, to avoid overflow."""
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    probabilities: Array = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return probabilities


def cross_entropy(scores: Array, targets: Tokens) -> tuple[float, Array]:
    """
    Return the mean cross-entropy in nats, and its gradient with respect to the scores.

    Args:
        scores: the scores of the classes before the softmax, of shape (rows, classes).
        targets: the right class of each row, of shape (rows,).
    """
    rows = np.arange(len(targets))
    shifted = scores - scores.max(axis=1, keepdims=True)
    logarithms = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    gradient = np.exp(logarithms)
    gradient[rows, targets] -= 1
    return -float(logarithms[rows, targets].mean()), gradient / len(targets)


def clip(gradients: Arrays, limit: float) -> float:
    """Scale the gradients in place so that their common norm is at most `limit`, and return the original norm."""
    norm = math.sqrt(sum(float(np.vdot(gradient, gradient)) for gradient in gradients.values()))
    if norm > limit:
        for gradient in gradients.values():
            np.multiply(gradient, limit / norm, out=gradient)
    return norm


class Adam:
    """Adam with bias correction (Kingma, Ba, 2015, algorithm 1)."""

    def __init__(self, parameters: Arrays, *, learning_rate: float) -> None:
        self.parameters = parameters
        self.learning_rate = learning_rate
        self.decays = (0.9, 0.99)
        self.epsilon = 1e-8
        self.updates = 0
        self._means = {name: np.zeros_like(value) for name, value in parameters.items()}
        self._squares = {name: np.zeros_like(value) for name, value in parameters.items()}

    def update(self, gradients: Arrays) -> None:
        """Move the parameters, in place, against their gradients."""
        self.updates += 1
        mean_decay, square_decay = self.decays
        mean_correction = 1 - mean_decay**self.updates
        square_correction = 1 - square_decay**self.updates
        for name, gradient in gradients.items():
            mean, square = self._means[name], self._squares[name]
            mean += (1 - mean_decay) * (gradient - mean)
            square += (1 - square_decay) * (gradient * gradient - square)
            deviation = np.sqrt(square / square_correction) + self.epsilon
            self.parameters[name] -= (self.learning_rate / mean_correction) * mean / deviation
