"""Low-rank and masked images of per-example gradients against numpy, for every kind of kernel.

Expected values come from the one-example-at-a-time oracle and the axes of each kernel that this
file says are inputs and outputs.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import oracle
from tests.contracts.case import LayerCase
from tests.contracts.layer_cases import LAYER_CASES, build_model
from tests.release.references import matrices
from tf_lowrank_dp.gradient_methods.methods import METHODS
from tf_lowrank_dp.layers.parameters import describe_parameters

L = keras.layers
SIZE, TOLERANCE = 3, 1e-5

# Axes of kernels in (inputs, outputs), where they are not (all but the last, the last).
HEADS, MERGE = ((0,), (1, 2)), ((0, 1), (2,))
ATTENTION = {"/query/": HEADS, "/key/": HEADS, "/value/": HEADS, "output/": MERGE}
AXES = {
    "einsum_heads": {"einsum": HEADS},
    "einsum_kernel_order": {"einsum": ((1,), (0,))},
    "einsum_interleaved": {"einsum": ((1,), (0, 2))},
    "einsum_reversed": {"einsum": ((1, 2), (0,))},
    "attention": ATTENTION,
    "attention_causal_value": ATTENTION,
    "lora_einsum_heads": {"lora_kernel_a": HEADS},
    "lora_einsum_kernel_order": {"lora": ((1,), (0,))},
    "lora_attention": {"query/lora_kernel_a": HEADS, "/key/": HEADS, "/value/": HEADS},
    "grouped_query_attention": ATTENTION,
}
OWN = [
    LayerCase("einsum_interleaved", lambda: L.EinsumDense("abc,dce->abde", (6, 2, 3)), (6, 5)),
    LayerCase("einsum_reversed", lambda: L.EinsumDense("abcd,edc->abe", (4, 7)), (4, 2, 3)),
]
NAMES = """
    dense dense_sequence dense_sequence_small dense_4d dense_shared dense_shared_materialised
    einsum_heads einsum_merge einsum_kernel_order einsum_over_positions einsum_summed
    einsum_ellipsis conv1d conv1d_causal conv1d_same_strided conv2d conv2d_same conv2d_strided
    conv2d_strided_valid conv2d_dilated conv2d_grouped conv2d_wide conv2d_shared conv3d
    depthwise2d embedding embedding_shared attention grouped_query_attention
    separable1d separable2d transposed1d transposed2d transposed2d_same
    attention_causal_value layer_norm_axes fallback_ids
    lora_dense_sequence lora_conv2d lora_embedding lora_attention
    lora_einsum_heads lora_einsum_merge lora_einsum_kernel_order
    table_untied table_tied table_tied_wide rnn_lstm_wide rnn_gru rnn_gru_before_wide
""".split()
CASES = {case.name: case for case in [*LAYER_CASES, *OWN] if case.name in NAMES or case in OWN}
XLA = ("einsum_reversed", "conv2d_strided", "embedding")
FEW = ("conv2d_same", "attention")


def make_batch(case, seed=0):
    generator = np.random.default_rng(seed)
    shape = (SIZE, *case.shape)
    # Few ids, so that rows of a table are looked up several times.
    ids = generator.integers(0, 5, shape).astype("int32")
    x = ids if case.kind == "ids" else generator.normal(size=shape).astype("float32")
    return {"x": tf.constant(x), "y": tf.constant(generator.normal(size=(SIZE, 3)), tf.float32)}


def losses_of(model):
    def losses(batch):
        y_pred = model(batch["x"], training=True)
        return tf.reduce_sum(tf.square(y_pred - batch["y"]), -1) + tf.reduce_sum(tf.sin(y_pred), -1)

    return losses


class Images:
    """For one kernel: carriers and masks, its images by the package, and by numpy."""

    def __init__(self, parameter, rows, columns, generator):
        shape = parameter.shape
        self.view, self.rows, self.columns = parameter.view, rows, columns
        m = int(np.prod([shape[axis] for axis in rows]))
        n = int(np.prod([shape[axis] for axis in columns]))
        k = min(2, m, n)
        self.r = generator.normal(size=(k, n)).astype(np.float32)
        self.l = generator.normal(size=(m, k)).astype(np.float32)
        self.weights_kept = generator.integers(0, 2, shape).astype(np.float32)
        self.last_kept = generator.integers(0, 2, shape[-1]).astype(np.float32)
        self.rows_kept = generator.integers(0, 2, m).astype(np.float32)
        self.columns_kept = generator.integers(0, 2, n).astype(np.float32)

    def found(self, gradient):
        right = gradient.right(tf.constant(self.r), self.view)
        left = gradient.left(tf.constant(self.l), self.view)
        return {
            "right": right,
            "left": left,
            "masked": gradient.masked(tf.constant(self.weights_kept)),
            "masked features": gradient.masked(tf.constant(self.last_kept)),
            "masked twice": gradient.masked(tf.constant(self.last_kept)).masked(
                tf.constant(self.weights_kept)
            ),
            "masked right": right.masked(tf.constant(self.rows_kept)),
            "masked left": left.masked(tf.constant(self.columns_kept)),
        }

    def expected(self, gradients):
        g = matrices(gradients, self.rows, self.columns)
        right = np.einsum("ko,bio->bki", self.r.astype(np.float64), g)
        left = np.einsum("ik,bio->bko", self.l.astype(np.float64), g)
        return {
            "right": right,
            "left": left,
            "masked": gradients * self.weights_kept,
            "masked features": gradients * self.last_kept,
            "masked twice": gradients * self.weights_kept * self.last_kept,
            "masked right": right * self.rows_kept,
            "masked left": left * self.columns_kept,
        }


def axes_of(case, parameter):
    for part, axes in AXES.get(case.name, {}).items():
        if part in parameter.path:
            return axes
    last = len(parameter.shape) - 1
    return tuple(range(last)), (last,)


def check(case, method, mode):
    keras.utils.set_random_seed(1)
    model, batch = build_model(case), make_batch(case)
    losses, generator = losses_of(model), np.random.default_rng(7)
    images = {
        index: Images(parameter, *axes_of(case, parameter), generator)
        for index, parameter in enumerate(describe_parameters(model))
        if parameter.view is not None
    }
    assert images
    weights = np.array([0.7, 0.0, 1.0], np.float32)

    def computed(batch, weights):
        gradients = METHODS[method](model, lambda b: (losses(b), ()), batch).gradients
        return {
            index: {
                name: (
                    image.materialize(),
                    image.squared_norms(),
                    image.squared_norm_bounds(),
                    image.weighted_sum(weights),
                )
                for name, image in images[index].found(gradients[index]).items()
            }
            for index in images
        }

    if mode != "eager":
        computed = tf.function(computed, jit_compile=mode == "xla", autograph=False)
    found = computed(batch, tf.constant(weights))
    gradients = oracle.per_example_gradients(model, losses, batch)
    largest = np.max(oracle.norms(gradients))
    for index, parameters in images.items():
        factor = max(1.0, np.linalg.norm(parameters.r), np.linalg.norm(parameters.l))
        scale = largest * factor
        for name, expected in parameters.expected(gradients[index]).items():
            values, squares, bounds, total = found[index][name]
            message = f"{model.trainable_variables[index].path}: {name}"
            assert values.shape == expected.shape, message
            assert oracle.relative_error(values, expected, scale) <= TOLERANCE, message
            true = np.sum(expected**2, axis=tuple(range(1, expected.ndim)))
            assert oracle.relative_error(squares, true, scale**2) <= TOLERANCE, message
            assert np.all(bounds.numpy() >= true - TOLERANCE * scale**2), message
            held = np.sum(np.float64(values) ** 2, axis=tuple(range(1, expected.ndim)))
            assert np.all(bounds.numpy() >= held * (1 - 1e-12)), message
            summed = np.tensordot(weights.astype(np.float64), expected, axes=1)
            assert oracle.relative_error(total, summed, scale) <= TOLERANCE, message


@pytest.mark.parametrize("name", sorted(CASES))
def test_images_equal_numpy_of_the_oracles_gradients(name):
    check(CASES[name], "bookkeeping", "eager")


@pytest.mark.parametrize("name", XLA)
def test_images_equal_numpy_under_xla(name):
    check(CASES[name], "bookkeeping", "xla")


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("method", ["bookkeeping", "reweight", "vectorized", "loop"])
def test_images_of_every_gradient_method_equal_numpy_in_graph_mode(name, method):
    check(CASES[name], method, "graph")


@pytest.mark.parametrize("kind", ["right", "left", "masked"])
@pytest.mark.parametrize("name", ["dense_sequence", "conv2d_same", "embedding"])
def test_an_example_of_weight_0_contributes_nothing_even_where_it_is_nan(name, kind):
    case = CASES[name]
    keras.utils.set_random_seed(1)
    model, batch = build_model(case), make_batch(case)
    losses, generator = losses_of(model), np.random.default_rng(7)
    parameters = describe_parameters(model)
    index = next(i for i, p in enumerate(parameters) if p.view and "pre" not in p.path)
    images = Images(parameters[index], *axes_of(case, parameters[index]), generator)
    clean = oracle.per_example_gradients(model, losses, batch)[index]
    expected = np.tensordot(np.array([1.0, 0.0, 0.5]), images.expected(clean)[kind], axes=1)
    batch["y"] = tf.tensor_scatter_nd_update(batch["y"], [[1, 0]], [np.nan])
    gradients = METHODS["bookkeeping"](model, lambda b: (losses(b), ()), batch).gradients
    image = images.found(gradients[index])[kind]
    total = image.weighted_sum(tf.constant([1.0, 0.0, 0.5]))
    assert oracle.relative_error(total, expected) <= TOLERANCE
    assert not np.isfinite(image.squared_norm_bounds()[1])
