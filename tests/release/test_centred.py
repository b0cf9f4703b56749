"""What is released of every layer is its gradient in centred coordinates.

The oracle is the same model in centred coordinates, differentiated one example at a time.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import oracle
from tests.contracts.case import simple
from tests.contracts.checks import losses_of, make_batch
from tests.contracts.layer_cases import LAYER_CASES, build_model
from tf_lowrank_dp.gradient_methods.methods import METHODS
from tf_lowrank_dp.layers.parameters import describe_parameters
from tf_lowrank_dp.release.centred import CentredSpace
from tf_lowrank_dp.release.identity import IdentitySpace
from tf_lowrank_dp.release.noise_energy import NoiseEnergy

CENTRED = {
    "dense": 1,
    "dense_sequence": 1,
    "dense_sequence_small": 1,
    "dense_shared": 1,
    "dense_shared_materialised": 1,
    "einsum_heads": 1,
    "einsum_merge": 1,
    "einsum_over_positions": 1,
    "einsum_ellipsis": 1,
    "einsum_position_bias": 0,
    "conv1d": 1,
    "conv1d_causal": 1,
    "conv1d_same_strided": 1,
    "conv2d": 1,
    "conv2d_same": 0,
    "conv2d_strided": 1,
    "conv2d_strided_valid": 1,
    "conv2d_dilated": 1,
    "conv2d_grouped": 1,
    "conv2d_wide": 1,
    "conv2d_shared": 1,
    "conv3d": 1,
    "several_shared": 2,
    "depthwise1d": 1,
    "depthwise2d": 1,
    "depthwise2d_strided": 1,
    "separable1d": 1,
    "separable2d": 1,
    "transposed2d": 0,
    "attention": 4,
    "rnn_simple": 2,
    "rnn_lstm_masked": 2,
    "rnn_lstm_no_bias": 0,
    "rnn_gru": 2,
    "rnn_gru_before": 2,
    "rnn_gru_before_wide": 2,
    "rnn_bidirectional": 4,
    "lora_dense": 1,
    "lora_conv2d": 1,
    "lora_einsum_heads": 0,
    "dense_one_kernel": 0,
    "dense_no_bias": 0,
    "embedding": 0,
    "fallback_custom": 0,
}
CASES = [case for case in LAYER_CASES if case.name in CENTRED]
OUTER = {"pre/kernel", "post/kernel"}
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def centres_for(parameters, seed=0):
    generator = np.random.default_rng(seed)
    kernels = {i: p for i, p in enumerate(parameters) if p.bias is not None}
    values = {i: generator.normal(size=p.centre_shape) for i, p in kernels.items()}
    return {i: tf.Variable(value, dtype=tf.float32) for i, value in values.items()}


def space_for(parameters, centres):
    inner = IdentitySpace(parameters, [range(len(parameters))])
    return CentredSpace(inner, parameters, centres, step=lambda: tf.constant(0))


def per_example(model, batch, method="bookkeeping"):
    losses = losses_of(model)
    return METHODS[method](model, lambda b: (losses(b), ()), batch).gradients


def centred_oracle(model, parameters, centres, batch):
    """Gradients of batches of one where kernels are moved and the output for centres is kept."""
    gradients = oracle.per_example_gradients(model, losses_of(model), batch)
    plain = [gradient.copy() for gradient in gradients]
    bias_of = {id(p.variable): i for i, p in enumerate(parameters)}
    for i, centre in centres.items():
        # d/dW of loss(W, b0 - shift(W)) by the chain rule, with the Jacobian of the shift.
        kernel = tf.convert_to_tensor(model.trainable_variables[i])
        bias = bias_of[id(parameters[i].bias.variable)]
        for b in range(len(gradients[i])):
            with tf.GradientTape() as tape:
                tape.watch(kernel)
                shift = parameters[i].mean_product(tf.convert_to_tensor(centre), kernel)
                inner = tf.reduce_sum(shift * tf.constant(plain[bias][b], tf.float32))
            gradients[i][b] -= np.float64(tape.gradient(inner, kernel))
        gradients[bias] = 0.3 * plain[bias]
    return gradients


@each_case
def test_captures_name_the_biases_that_are_added_to_their_kernels(case):
    parameters = describe_parameters(build_model(case))
    kernels = [p.path for p in parameters if p.bias is not None and p.path not in OUTER]
    assert len(kernels) == CENTRED[case.name]


L = keras.layers
LINEAR = [
    (simple(L.Dense, 4), (5,)),
    (simple(L.Dense, 3), (2, 3, 5)),
    (simple(L.EinsumDense, "abcd,cde->abe", (4, 7), bias_axes="e"), (4, 2, 3)),
    (simple(L.EinsumDense, "abc,bd->adc", (4, 5), bias_axes="d"), (6, 5)),
    (simple(L.Conv1D, 4, 3, padding="causal", dilation_rate=2), (8, 3)),
    (simple(L.Conv1D, 4, 4, strides=2, padding="same"), (9, 3)),
    (simple(L.Conv2D, 4, (3, 2), padding="same"), (7, 6, 3)),
    (simple(L.Conv2D, 4, 3, strides=(2, 3), padding="same"), (7, 6, 3)),
    (simple(L.Conv2D, 4, 3, strides=2), (7, 6, 3)),
    (simple(L.Conv2D, 4, 2, dilation_rate=2), (7, 6, 3)),
    (simple(L.Conv2D, 4, 2, dilation_rate=2, padding="same"), (7, 6, 1)),
    (simple(L.Conv2D, 6, 3, groups=2, padding="same"), (7, 6, 4)),
    (simple(L.Conv2D, 40, 3, padding="same"), (3, 3, 20)),
    (simple(L.Conv3D, 3, 2, strides=2, padding="same"), (4, 5, 4, 2)),
    (simple(L.DepthwiseConv1D, 3, depth_multiplier=2), (8, 3)),
    (simple(L.DepthwiseConv2D, 3, padding="same", depth_multiplier=2, strides=2), (7, 6, 3)),
]


@pytest.mark.parametrize(
    ("make", "shape"), LINEAR, ids=[f"{make().name}-{shape}" for make, shape in LINEAR]
)
@pytest.mark.parametrize("length", ["known", "unknown"])
def test_the_mean_output_of_a_linear_layer_is_its_product_of_the_mean_inputs(make, shape, length):
    """At padding, strides, dilation and groups: Keras' own forward pass is the oracle."""
    generator, layer = np.random.default_rng(3), make()
    x = generator.normal(size=(5, *shape)).astype("float32")
    if length == "unknown" and not isinstance(layer, L.EinsumDense):
        shape = (*[None] * (len(shape) - 1), shape[-1])
    model = keras.Sequential([keras.Input(shape), layer])
    layer.bias.assign(generator.normal(size=layer.bias.shape))
    [parameter] = [p for p in describe_parameters(model) if p.bias is not None]
    positions = [i for i, v in enumerate(model.trainable_variables) if v is parameter.variable]

    def losses(batch):
        outputs = tf.sin(model(batch))
        return tf.reduce_sum(outputs, range(1, outputs.shape.rank)), ()

    @tf.function(input_signature=[tf.TensorSpec((None, *shape))], autograph=False)
    def means(batch):
        return METHODS["bookkeeping"](model, losses, batch).gradients[positions[0]].mean_inputs()

    found = means(x)
    assert found.shape[1:] == parameter.centre_shape
    outputs = np.float64(model(x)) - layer.bias.numpy()
    if layer.bias.shape[-1] == 1:  # "adc": the features are in the middle
        outputs = np.swapaxes(outputs, 1, 2)
    expected = outputs.reshape(5, -1, outputs.shape[-1]).mean(1)
    for mean, output in zip(found, expected, strict=True):
        product = parameter.mean_product(mean, layer.trainable_variables[0])
        assert oracle.relative_error(np.ravel(product), output) < 2e-5


@each_case
@pytest.mark.parametrize("method", ["bookkeeping", "reweight"])
def test_what_is_released_is_the_gradient_in_centred_coordinates(case, method):
    keras.utils.set_random_seed(1)
    model, batch = build_model(case), make_batch(case, 3)
    parameters = describe_parameters(model)
    centres = centres_for(parameters)
    space = space_for(parameters, centres)
    expected = centred_oracle(model, parameters, centres, batch)
    block, _ = space.project(per_example(model, batch, method), space.refresh())
    weights = np.float32([0.3, 0.0, 2.0])
    for gradient, exact, parameter in zip(block, expected, parameters, strict=True):
        scale = np.max(oracle.norms(expected))
        found = gradient.materialize()
        assert oracle.relative_error(found, exact, scale) < 2e-5, parameter.path
        squares = (exact**2).reshape(3, -1).sum(1)
        assert oracle.relative_error(gradient.squared_norms(), squares, scale**2) < 2e-5
        bounds = np.float64(gradient.squared_norm_bounds())
        assert np.all(bounds >= squares * (1 - 1e-5) - 1e-10 * scale**2)
        total = gradient.weighted_sum(tf.constant(weights))
        assert oracle.relative_error(total, np.tensordot(weights, exact, 1), scale) < 2e-5


def test_the_energy_of_its_noise_is_that_of_lifted_draws_without_the_means():
    [case] = [case for case in CASES if case.name == "conv2d"]
    parameters = describe_parameters(build_model(case))
    space = space_for(parameters, centres_for(parameters))
    variances = [[np.full(shape, 2.0) for shape in block] for block in space.shapes]

    def normal(shapes):
        return [tf.random.stateless_normal(shape, [len(shapes), next(seeds)]) for shape in shapes]

    seeds = iter(range(10_000))
    closed = space.noise_energy(variances, normal)
    tried = [NoiseEnergy.tried(space, variances, space.refresh(), normal) for _ in range(60)]
    assert closed.released == tried[0].released and closed.raw == pytest.approx(tried[0].raw)
    assert not closed.is_estimate
    mean = np.mean([energies.lifted for energies in tried], axis=0)
    np.testing.assert_allclose(closed.lifted, mean, rtol=0.35)
