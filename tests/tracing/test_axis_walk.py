"""The walk through a graph: what it says of an axis of examples is true of the numbers."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.kernels import skipped_without_kernel
from tf_lowrank_dp.tracing.axis_walk import Walk
from tf_lowrank_dp.tracing.example_axis import Joined, Rows, Unknown
from tf_lowrank_dp.tracing.random_ops import FixedSource, random_numbers_from
from tf_lowrank_dp.tracing.traced_part import traced_part

SIZE, TIME, WIDTH = 13, 4, 6
ops = keras.ops
KERNEL = tf.reshape(tf.sin(tf.range(36.0)), [6, 6])
IMAGE = tf.reshape(tf.sin(tf.range(2 * 2 * 6 * 3.0)), [2, 2, 6, 3])
GROUPED = tf.Variable(IMAGE[:, :1, :2])  # filters, of 6 channels in 3 groups

# From x (SIZE, TIME, WIDTH); each must keep the examples apart.
ROWS = {
    "broadcast": lambda x: x * KERNEL[:TIME] + KERNEL[0] - 1.0,
    "with itself": lambda x: x[:, :, :1] * x + ops.mean(x, (1, 2), keepdims=True),
    "mean of positions": lambda x: ops.mean(x, 1),
    "sum of all but examples": lambda x: tf.reduce_sum(x, [1, 2]),
    "matrix product": lambda x: x @ KERNEL,
    "gram of an example": lambda x: tf.matmul(x, x, transpose_b=True),
    "einsum": lambda x: tf.einsum("bti,io->bto", x, KERNEL),
    "einsum over positions": lambda x: tf.einsum("bti,bsi->bts", x, x),
    "transposed": lambda x: tf.transpose(x, [2, 0, 1]),
    "transposed from the back": lambda x: tf.transpose(x, [-3, -1, -2]),
    "positions in the first axis": lambda x: tf.reshape(x, [-1, WIDTH]) @ KERNEL,
    "positions first, then merged": lambda x: tf.reshape(tf.transpose(x, [1, 0, 2]), [-1, WIDTH]),
    "merged and back": lambda x: tf.reshape(tf.reshape(x, [-1, WIDTH]) @ KERNEL, [SIZE, -1]),
    "flattened": lambda x: tf.reshape(x, [SIZE, TIME * WIDTH]),
    "axes of one": lambda x: tf.squeeze(x[:, None, :, None], [1, 3]),
    "softmax": lambda x: tf.nn.softmax(x),
    "softmax over positions": lambda x: ops.softmax(x, 1),
    "sorted": lambda x: ops.sort(x, -1),
    "cumulated over positions": lambda x: ops.cumsum(x, 1),
    "reversed positions": lambda x: tf.reverse(x, [1]),
    "rolled features": lambda x: tf.roll(x, 2, 2),
    "joined features": lambda x: tf.concat([x, 2.0 * x, tf.zeros([SIZE, TIME, 1])], 2),
    "two views": lambda x: tf.concat([x, -x], 0),
    "two views, the first": lambda x: tf.split(tf.concat([x, -x], 0), 2)[0],
    "stacked": lambda x: tf.stack([x, x * x], 0),
    "unstacked": lambda x: tf.unstack(x, axis=1)[2],
    "slices": lambda x: x[:, 1:3, ::-1],
    "one position": lambda x: x[:, -1],
    "last feature, new axis": lambda x: x[..., None, -1],
    "padded": lambda x: tf.pad(x, [[0, 0], [1, 1], [0, 2]]),
    "tiled": lambda x: tf.tile(x, [1, 2, 1]),
    "repeated": lambda x: tf.repeat(x, 3, 1),
    "table": lambda x: tf.gather(KERNEL, tf.cast(tf.abs(x[:, :, 0]), tf.int32) % 6),
    "features by number": lambda x: tf.gather(x, [3, 1], axis=2),
    "own position": lambda x: tf.gather(
        x, tf.cast(tf.abs(x[:, :1, 0]), tf.int32) % TIME, axis=1, batch_dims=1
    ),
    "one hot": lambda x: tf.one_hot(tf.cast(tf.abs(x[:, :, 0]), tf.int32) % 5, 5),
    "masked": lambda x: tf.where(x > 0.0, x, tf.zeros_like(x)),
    "convolution": lambda x: tf.nn.conv2d(x[:, :, None], IMAGE[:, :1], 1, "SAME"),
    "grouped convolution": lambda x: ops.conv(x[:, :, None], GROUPED),  # compiled, a function
    "gradient of a grouped convolution": lambda x: gradient(
        lambda z: tf.sin(ops.conv(z[:, :, None], GROUPED)), x
    ),
    "dilated convolution": lambda x: tf.nn.conv2d(
        x[..., None], IMAGE[:2, :, :1], 1, "SAME", dilations=2
    ),
    "gradient of a dilated convolution": lambda x: gradient(
        lambda z: tf.sin(tf.nn.conv2d(z[..., None], IMAGE[:2, :, :1], 1, "VALID", dilations=2)), x
    ),
    "in blocks": lambda x: tf.space_to_batch(x[:, :4], [2], [[0, 0]]) * 2.0,
    "spectrum": lambda x: tf.signal.fft2d(tf.complex(x, 0.0 * x)),
    "gradient of a spectrum": lambda x: gradient(lambda z: tf.abs(tf.signal.rfft(z)) ** 2, x),
    "pooling": lambda x: tf.nn.max_pool2d(x[..., None], 2, 2, "VALID"),
    "own random numbers": lambda x: x + keras.random.normal(tf.shape(x)),
    "dropout": lambda x: keras.random.dropout(x, 0.5),
    "one mask for all": lambda x: x * keras.random.uniform((1, 1, WIDTH)),
    "largest of the features": lambda x: tf.argmax(x, -1),
    "loop over positions": lambda x: tf.while_loop(
        lambda i, h: i < TIME, lambda i, h: (i + 1, tf.tanh(h + x[:, 0])), (0, x[:, 1])
    )[1],
    "branch by a constant": lambda x: tf.cond(tf.constant(True), lambda: x + 1.0, lambda: x * 2.0),
    "function": lambda x: tf.function(lambda z: tf.nn.relu(z) @ KERNEL)(x),
    "several at once": lambda x: tf.identity_n([x[:, 0], tf.transpose(x, [1, 2, 0])])[1],
    "custom gradient": lambda x: tf.custom_gradient(lambda a, b: (a + b[:, 0], lambda d: (d, d)))(
        x[:, 0], x
    ),
    "gradient of slices": lambda x: gradient(lambda z: tf.sin(z[:, 1:3, ::2])[..., 0], x),
    "gradient of a slice in place": lambda x: gradient(lambda z: tf.sin(z[None, ..., -1]), x),
    "gradient of a transposition": lambda x: gradient(
        lambda z: tf.sin(tf.transpose(z, [2, 0, 1])), x
    ),
    "gradient of a broadcast product": lambda x: gradient(
        lambda z: tf.sin(tf.matmul(z[:, None], tf.stack([KERNEL] * 3))), x
    ),
    "gradient of a mean": lambda x: gradient(lambda z: tf.sin(tf.reduce_mean(z, [1, -1])), x),
    "gradient of a concatenation": lambda x: gradient(
        lambda z: tf.sin(tf.concat([z, KERNEL[None, :TIME] + z], 2)), x
    ),
    "shape known": lambda x: tf.ensure_shape(x, [SIZE, None, WIDTH]),
    "selected": lambda x: tf.raw_ops.Select(condition=x > 0.0, x=x, y=-x),
    "one of two": lambda x: tf.raw_ops.Select(condition=KERNEL[0, 0] > 0.0, x=x, y=-x),
    "vectorized sums": lambda x: tf.vectorized_map(lambda z: tf.reduce_sum(z, [0]), x),
    "segments of an example": lambda x: tf.math.segment_sum(
        tf.reshape(x, [-1, WIDTH]), tf.range(SIZE * TIME) // TIME
    ),
    "segments of positions": lambda x: tf.math.segment_max(
        tf.transpose(x, [1, 0, 2]), tf.range(TIME) // 2
    ),
    "layer normalisation": lambda x: (
        (x - ops.mean(x, -1, keepdims=True)) / ops.std(x, -1, keepdims=True)
    ),
}


def gradient(function, x):
    """Of the function's sum."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return tf.convert_to_tensor(tape.gradient(y, x))


# Each of these lets an example see others.
JOINED = {
    "mean": lambda x: x + 0.0 * tf.reduce_mean(x, 0),
    "mean of all": lambda x: x - tf.reduce_mean(x),
    "largest of the batch": lambda x: x / tf.reduce_max(tf.abs(x), 0),
    "softmax over the batch": lambda x: ops.softmax(x, 0),
    "cumulated": lambda x: tf.cumsum(x, 0),
    "reversed": lambda x: x + x[::-1],
    "rolled": lambda x: x + tf.roll(x, 1, 0),
    "first row": lambda x: x + x[:1],
    "all but the last": lambda x: x + tf.pad(x[1:], [[0, 1], [0, 0], [0, 0]]),
    "filters of examples": lambda x: tf.nn.conv2d(
        x[:, :, None], tf.reshape(x[:, 0], [SIZE, 1, WIDTH, 1]), 1, "SAME"
    ),
    "gram of the batch": lambda x: tf.matmul(x[:, 0], x[:, 0], transpose_b=True),
    "covariance": lambda x: x @ tf.matmul(x[:, 0], x[:, 0], transpose_a=True),
    "attention over the batch": lambda x: tf.einsum("bti,cti->bct", x, x),
    "pairs": lambda x: x[:, None, 0] - x[None, :, 0],
    "merged with positions, then summed": lambda x: (
        x + tf.reduce_sum(tf.reshape(x, [-1, WIDTH]), 0)
    ),
    "shuffled": lambda x: tf.gather(x, tf.argsort(x[:, 0, 0])),
    "in order": lambda x: x * ops.sort(x[:, 0, 0], 0)[:, None, None],
    "behind a rare condition": lambda x: tf.where(x > 1e6, x - tf.reduce_mean(x, 0), x),
    "behind a dead unit": lambda x: x + tf.nn.relu(tf.reduce_mean(x, 0) - 1e9),
    "by a branch on the batch": lambda x: tf.cond(
        tf.reduce_mean(x) > 1e6, lambda: x * 2.0, lambda: x
    ),
    "in a function": lambda x: tf.function(lambda z: z - tf.reduce_mean(z, 0))(x),
    "counts of the batch": lambda x: (
        x[:, 0, :1]
        * tf.cast(tf.math.bincount(tf.cast(tf.abs(x[:, 0, 0]), tf.int32)), tf.float32)[0]
    ),
    "in a loop": lambda x: tf.while_loop(
        lambda i, h: i < 3, lambda i, h: (i + 1, h - tf.reduce_mean(h, 0)), (0, x)
    )[1],
    "gradient of a kernel": lambda x: x @ gradient(lambda kernel: tf.sin(x @ kernel), KERNEL),
    "gradient of a slice of the batch": lambda x: gradient(lambda z: tf.sin(z[1:] * z[:-1]), x),
    "selected by the batch": lambda x: tf.raw_ops.Select(
        condition=tf.reduce_any(x > 9.0), x=x, y=-x
    ),
    "segments": lambda x: tf.math.unsorted_segment_sum(x, tf.range(SIZE) // 2, SIZE),
    "segments of equal numbers": lambda x: tf.math.unsorted_segment_mean(
        x[:, 0], tf.cast(tf.abs(x[:, 0, 0]), tf.int32) % 5, 5
    ),
    "batch normalisation": lambda x: tf.raw_ops.FusedBatchNormV3(
        x=x[:, :, None],
        scale=tf.ones([6]),
        offset=tf.zeros([6]),
        mean=tf.zeros([6]),
        variance=tf.ones([6]),
        is_training=True,
    )[0],
}

# Right or wrong, the walk does not claim to know.
UNKNOWN = {
    "counts of each example": lambda x: tf.math.bincount(
        tf.cast(tf.abs(x[:, :, 0]), tf.int32) % 5, maxlength=5, axis=-1
    ),
    "twice the numbers of the rows": lambda x: (
        x * tf.cast(tf.range(SIZE) * 2, tf.float32)[:, None, None]
    ),
    "numbers of the rows": lambda x: x * tf.range(float(SIZE))[:, None, None],
    "rolled by numbers of the rows": lambda x: tf.roll(x, numbers(x), [1] * SIZE),
    "rolled by random numbers of the rows": lambda x: tf.roll(
        x, keras.random.randint([SIZE], 0, 3), [1] * SIZE
    ),
    "split by numbers of the rows": lambda x: tf.reduce_sum(
        tf.raw_ops.SplitV(value=x, size_splits=numbers(x), axis=1, num_split=SIZE)[0], 1
    ),
    "counts with weights of others": lambda x: tf.raw_ops.DenseBincount(
        input=tf.tile(numbers(x)[:, None], [1, SIZE]),
        size=2,
        weights=tf.tile(x[None, :, 0, 0], [SIZE, 1]),
    ),
    "channels normalised by numbers of the rows": lambda x: tf.raw_ops.FusedBatchNormV3(
        x=tf.tile(x[:, :1, :1, None], [1, 1, 1, SIZE]),
        scale=tf.ones([SIZE]),
        offset=tf.zeros([SIZE]),
        mean=x[:, 0, 0],
        variance=tf.ones([SIZE]),
        is_training=False,
    )[0],
    # Of stored statistics: but TensorFlow computes relu of any of these of the images instead.
    "another output of a stored normalisation": lambda x: (
        x
        * tf.reduce_max(
            tf.nn.relu(
                tf.raw_ops.FusedBatchNormV3(
                    x=x[:, :, None],
                    scale=tf.ones([6]),
                    offset=tf.ones([6]),
                    mean=tf.ones([6]),
                    variance=tf.ones([6]),
                    is_training=False,
                )[1]
            )
        )
    ),
    "segments of unknown ids": lambda x: tf.math.unsorted_segment_sum(
        x, tf.where(KERNEL[0, 0] > 0.0, tf.range(SIZE), 0), SIZE
    ),
    "one segment too many": lambda x: tf.math.unsorted_segment_sum(x, tf.range(SIZE), SIZE + 1),
    "rows selected by number": lambda x: tf.raw_ops.Select(condition=tf.range(SIZE) > 3, x=x, y=-x),
    "own row by number": lambda x: tf.gather_nd(x, tf.stack([tf.range(SIZE)] * 1, 1)),
}


def numbers(x):
    """0 or 1 for each example."""
    return tf.cast(x[:, 0, 0] > 0.0, tf.int32)


def labelled(function):
    """The label of the function's result, and the function."""

    @tf.function(autograph=False)
    def traced(x):
        with random_numbers_from(FixedSource()):
            return function(x)

    graph = traced.get_concrete_function(tf.TensorSpec([SIZE, TIME, WIDTH])).graph
    [label] = Walk(SIZE).outputs(graph, [Rows(0)])
    return label, traced


@pytest.mark.parametrize("name", ROWS)
def test_what_is_said_to_be_an_examples_own_does_not_change_with_others(name):
    if name == "transposed from the back" and tf.version.VERSION.startswith("2.18."):
        pytest.skip("TensorFlow 2.18 itself aborts on a negative axis in tf.transpose.")
    label, function = labelled(ROWS[name])
    assert isinstance(label, Rows), label
    x = np.random.default_rng(0).normal(0.0, 2.0, (SIZE, TIME, WIDTH)).astype("float32")
    other = x.copy()
    other[3] = np.random.default_rng(1).normal(0.0, 2.0, (TIME, WIDTH))
    with skipped_without_kernel():
        a, b = (np.moveaxis(function(v).numpy(), label.axis, 0) for v in (x, other))
    own = np.arange(len(a)) // label.inner % SIZE == 3
    np.testing.assert_array_equal(a[~own], b[~own])
    assert np.any(a[own] != b[own])


@pytest.mark.parametrize("name", JOINED)
def test_what_joins_examples_is_found_whatever_the_numbers_are(name):
    label, _ = labelled(JOINED[name])
    assert isinstance(label, Joined), label


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_not_known_is_left_to_the_probe(name):
    label, _ = labelled(UNKNOWN[name])
    assert isinstance(label, Unknown), label


def test_what_changes_state_is_found():
    variable, table = (
        tf.Variable(0.0),
        tf.lookup.experimental.MutableHashTable(tf.string, tf.float32, 0.0),
    )

    def inner(x):
        variable.assign_add(tf.reduce_sum(x))
        table.insert("sum", tf.reduce_sum(x))
        return tf.numpy_function(lambda z: z, [x], tf.float32)

    function = tf.function(lambda x: tf.function(inner)(x))
    graph = function.get_concrete_function(tf.TensorSpec([SIZE, 2])).graph
    kinds = {write.split()[0] for write in traced_part(graph, 0).writes}
    assert kinds == {"AssignAddVariableOp", "LookupTableInsertV2", "PyFunc"}
