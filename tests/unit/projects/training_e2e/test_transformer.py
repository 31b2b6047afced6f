"""The gradients of the training workload's model are the slopes of its loss."""

import numpy as np
import pytest

from transformer import Adam, Arrays, Shape, Transformer, causal_attention, clip, initial_parameters

SHAPE = Shape(vocabulary=7, layers=2, width=8, heads=2, context=5)
NAMES = sorted(initial_parameters(SHAPE, np.random.default_rng(0), "float64"))


def model() -> Transformer:
    """Return a model with changed parameters: initial zero biases and unit norms would hide mistakes."""
    generator = np.random.default_rng(1)
    parameters = initial_parameters(SHAPE, generator, "float64")
    for value in parameters.values():
        np.add(value, generator.normal(0, 0.3, value.shape), out=value)
    return Transformer(SHAPE, parameters)


def loss_and_gradients(model: Transformer) -> tuple[float, Arrays]:
    tokens = np.random.default_rng(2).integers(0, SHAPE.vocabulary, (3, SHAPE.context + 1))
    return model.loss_and_gradients(tokens[:, :-1], tokens[:, 1:])


@pytest.mark.parametrize("name", NAMES)
def test_each_gradient_is_the_slope_of_the_loss(name: str) -> None:
    subject, distance = model(), 1e-5
    _, gradients = loss_and_gradients(subject)
    parameter = subject.parameters[name]
    for index in np.random.default_rng(3).permutation(list(np.ndindex(parameter.shape)))[:12]:
        place = tuple(index)
        value = parameter[place]
        parameter[place] = value + distance
        above, _ = loss_and_gradients(subject)
        parameter[place] = value - distance
        below, _ = loss_and_gradients(subject)
        parameter[place] = value
        assert gradients[name][place] == pytest.approx((above - below) / (2 * distance), rel=1e-5, abs=1e-8)


def test_every_parameter_has_a_gradient_of_its_shape_and_precision() -> None:
    parameters = initial_parameters(SHAPE, np.random.default_rng(0), "float32")
    _, gradients = loss_and_gradients(Transformer(SHAPE, parameters))
    assert {name: (array.shape, array.dtype) for name, array in gradients.items()} == {
        name: (array.shape, array.dtype) for name, array in parameters.items()
    }


def test_a_token_does_not_see_what_follows_it() -> None:
    inputs = np.random.default_rng(0).normal(size=(5, 3 * 8))
    before, _ = causal_attention(inputs, context=5, heads=2)
    inputs[3] += 1.0
    after, _ = causal_attention(inputs, context=5, heads=2)
    assert (before != after).any(axis=1).tolist() == [False, False, False, True, True]


def test_the_loss_of_an_untrained_model_is_that_of_guessing() -> None:
    subject = Transformer(SHAPE, initial_parameters(SHAPE, np.random.default_rng(0), "float64"))
    loss, _ = loss_and_gradients(subject)
    assert loss == pytest.approx(np.log(SHAPE.vocabulary), abs=0.05)


def test_clipping_limits_the_common_norm_and_keeps_the_direction() -> None:
    gradients: Arrays = {"a": np.array([3.0]), "b": np.array([4.0])}
    assert clip(gradients, 1.0) == pytest.approx(5.0)
    assert [float(gradients[name][0]) for name in "ab"] == pytest.approx([0.6, 0.8])


def test_clipping_leaves_small_gradients() -> None:
    gradients: Arrays = {"a": np.array([0.5])}
    clip(gradients, 1.0)
    assert gradients["a"][0] == 0.5


def test_the_first_update_of_adam_is_the_learning_rate_against_the_sign() -> None:
    parameters: Arrays = {"a": np.array([1.0, 1.0])}
    Adam(parameters, learning_rate=0.1).update({"a": np.array([1e-3, -20.0])})
    assert parameters["a"] == pytest.approx(np.array([0.9, 1.1]), rel=1e-4)
