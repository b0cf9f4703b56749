"""One record moves the sum by one clip, where it reached others behind what was looked at.

An id beyond its table, in a gradient that is taken one example at a time; an order that all rows
share; a list that holds the rows' numbers; an input that a gradient of one's own keeps out of the
losses.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops.parallel_for import pfor

import tf_lowrank_dp as tfdp
from tf_lowrank_dp._tensorflow import elements_stay_apart

L = keras.layers
GENERATOR = np.random.default_rng(0)


def released(model, x, y, loss="mse", jit_compile=False, gradient_method="auto", **private):
    """The sum of the clipped gradients (clip 1) of a step on all rows, without noise."""
    tfdp.make_private(model, **private)
    optimizer = tfdp.DPSGDOptimizer(
        keras.optimizers.SGD(1.0),
        l2_norm_clip=1.0,
        noise_multiplier=0.0,
        gradient_method=gradient_method,
    )
    model.compile(optimizer, loss, jit_compile=jit_compile)
    before = [v.numpy() for v in model.trainable_variables]
    model.fit(x, y, batch_size=len(y), verbose=0)
    pairs = zip(before, model.trainable_variables, strict=True)
    return len(y) * np.concatenate([(b - v.numpy()).ravel() for b, v in pairs])


def moved(build, rows, record, **settings):
    """By how many clips a record in front of the rows moves the sum."""
    sums = []
    more = tf.nest.map_structure(lambda r, all_: np.concatenate([r[None], all_]), record, rows)
    for x, y in (rows, more):
        keras.utils.set_random_seed(0)
        sums.append(released(build(), x, y, **settings))
    return np.linalg.norm(sums[1] - sums[0])


IDS, WORDS, ROWS = 20, 7, 24


def embedding():
    return keras.Sequential(
        [
            keras.Input((IDS,), dtype="int32"),
            L.Embedding(WORDS, 4),
            L.GlobalAveragePooling1D(),
            L.Dense(1),
        ]
    )


class FromTable(L.Layer):
    """A table of three axes, for which the operation's rule is none: it uses the fallback."""

    def build(self, shape):
        self.table = self.add_weight(shape=(WORDS, 2, 3), name="table")

    def call(self, ids):
        return tf.reshape(tf.gather(self.table, ids), [-1, IDS * 6])


def from_table():
    return keras.Sequential([keras.Input((IDS,), dtype="int32"), FromTable(), L.Dense(1)])


@pytest.mark.parametrize(
    ("build", "settings"),
    [
        (embedding, {"gradient_method": "vectorized"}),
        (embedding, {"gradient_method": "vectorized", "jit_compile": True}),
        (from_table, {"jit_compile": True}),
    ],
)
@pytest.mark.parametrize("ids", [np.arange(IDS) % WORDS, WORDS * (1 + np.arange(IDS))])
def test_an_id_beyond_its_table_is_in_no_other_examples_gradient(build, settings, ids):
    x = GENERATOR.integers(0, WORDS, (ROWS, IDS)).astype("int32")
    y = GENERATOR.normal(size=(ROWS, 1)).astype("float32")
    record = ids.astype("int32"), np.array([1e5], "float32")
    assert moved(build, (x, y), record, **settings) <= 1.0 + 1e-5


class Picked(L.Layer):
    """The hidden states at positions that come with the data, as of masked words."""

    def __init__(self, by):
        super().__init__()
        self.by = by

    def call(self, hidden, positions):
        if self.by == "take_along_axis":
            return keras.ops.take_along_axis(hidden, positions[..., None], axis=1)
        return tf.gather(hidden, positions, axis=1, batch_dims=1)


@pytest.mark.parametrize("by", ["gather", "take_along_axis"])
@pytest.mark.parametrize("beyond", [False, True])
def test_a_position_beyond_its_text_is_in_no_other_examples_gradient(by, beyond):
    length, picked = 6, IDS

    def build():
        x, positions = keras.Input((length, 3)), keras.Input((picked,), dtype="int32")
        outputs = L.Dense(1)(Picked(by)(L.Dense(4)(x), positions))
        return keras.Model([x, positions], outputs)

    x = GENERATOR.normal(size=(ROWS, length, 3)).astype("float32")
    positions = GENERATOR.integers(0, length, (ROWS, picked)).astype("int32")
    y = GENERATOR.normal(size=(ROWS, picked, 1)).astype("float32")
    steps = np.arange(picked, dtype="int32")
    hostile = length * (1 + steps) if beyond else steps % length
    far = np.full((length, 3), 100.0, "float32"), np.full((picked, 1), 1e4, "float32")
    record = (far[0], hostile), far[1]
    assert moved(build, ((x, positions), y), record) <= 1.0 + 1e-5


class ShuffledPatches(L.Layer):
    """One order of the patches for all rows."""

    def call(self, x, training=None):
        patches = tf.transpose(x, [1, 0, 2])
        shuffled = tf.random.shuffle(patches) if training else patches
        return tf.transpose(shuffled, [1, 0, 2])


def test_an_order_that_rows_would_share_is_each_examples_own():
    """Rows in equal groups of a part's size would all have one sign in a part's sum."""
    kinds, of_a_kind = 6, 7
    rows = np.repeat(np.eye(kinds, dtype="float32"), of_a_kind, 0)
    x = np.stack([rows, -rows], 1)
    patches = keras.Input((2, kinds))
    sides = L.Lambda(lambda h: h[:, 0] - h[:, 1])(ShuffledPatches()(patches))
    model = keras.Model(patches, L.Dense(1, use_bias=False)(sides))
    y = np.ones((len(x), 1), "float32")
    with pytest.warns(UserWarning, match="one example at a time"):
        sums = released(
            model, x, y, lambda y, p: keras.ops.sum(y * p, -1), microbatch_size=of_a_kind
        )
    assert np.any(np.abs(np.abs(sums) - of_a_kind) > 0.5)


class Numbered(L.Layer):
    """The sign of a row's place in the batch, out of a list."""

    def call(self, h):
        place = tf.cast(tf.range(tf.shape(h)[0]) % 2 * 2 - 1, tf.float32)[:, None]
        kept = tf.TensorArray(tf.float32, 2, element_shape=[None, 1])
        stacked = kept.unstack(tf.stack([place, place])).write(0, h).stack()
        return stacked[0] * stacked[1]


class NumberedInIntegers(L.Layer):
    """The same, where the list holds integers of the examples as well."""

    def call(self, h):
        kept = tf.TensorArray(tf.int32, 2, element_shape=[None])
        kept = kept.write(0, tf.cast(h[:, 0] > 0, tf.int32)).write(1, tf.range(tf.shape(h)[0]))
        return h * tf.cast(1 - 2 * (kept.read(1) % 2), h.dtype)[:, None]


def moved_where_places_have_signs(layer):
    """By how many clips, where a record in front gives each row the sign of the next place."""

    def build():
        dense = L.Dense(1, use_bias=False)
        return keras.Sequential([keras.Input((3,)), dense, layer()])

    x = np.ones((12, 3), "float32")
    x[1::2] *= -1
    rows = x, np.ones((12, 1), "float32")
    record = np.ones(3, "float32"), np.ones(1, "float32")
    return moved(build, rows, record, loss=lambda y, p: keras.ops.sum(y * p, -1))


@pytest.mark.parametrize("numbered", [Numbered, NumberedInIntegers])
def test_a_list_that_holds_the_rows_numbers_tells_them_apart(numbered):
    assert moved_where_places_have_signs(numbered) <= 1.0 + 1e-5


@tf.custom_gradient
def injected(value, other):
    """The other has no part in the value, and gets its gradient."""
    return tf.identity(value), lambda d: (d, d)


def of_the_others_beyond_50(x):
    return x + tf.reduce_sum(tf.nn.relu(x - 50.0), 0, keepdims=True)


class Injected(L.Layer):
    def call(self, value, other):
        return injected(value, other)


def test_inputs_that_join_examples_are_found_where_no_loss_depends_on_them():
    x = keras.Input((3,))
    other = L.Dense(2)(L.Lambda(of_the_others_beyond_50, output_shape=(3,))(x))
    model = keras.Model(x, L.Dense(1)(Injected()(L.Dense(2)(x), other)))
    rows = np.ones((16, 3), "float32"), np.ones((16, 1), "float32")
    with pytest.raises(tfdp.UnsupportedModelError, match="joins the examples"):
        released(model, *rows)


class Depthwise(L.Layer):
    """A layer of one's own, which the fallback differentiates one example at a time."""

    def build(self, shape):
        self.kernel = self.add_weight(shape=(3, 3, shape[-1], 2), name="kernel")

    def call(self, x):
        return keras.ops.tanh(keras.ops.depthwise_conv(x, self.kernel, 1, "same"))


def depthwise_by(layer):
    layers = [keras.Input((8, 8, 4)), layer(), L.Flatten(), L.Dense(2)]
    return keras.Sequential(layers)


@pytest.mark.parametrize("bad", [np.inf, np.nan])
@pytest.mark.parametrize(
    ("layer", "method"),
    [
        (Depthwise, "auto"),
        (Depthwise, "vectorized"),
        (lambda: L.DepthwiseConv2D(3, depth_multiplier=2, strides=2), "vectorized"),
    ],
    ids=["own", "own one by one", "stock one by one"],
)
def test_a_number_that_is_none_is_in_no_other_examples_depthwise_gradient(layer, method, bad):
    x = GENERATOR.normal(size=(ROWS, 8, 8, 4)).astype("float32")
    y = GENERATOR.normal(size=(ROWS, 2)).astype("float32")
    record = np.zeros((8, 8, 4), "float32"), np.ones(2, "float32")
    record[0][3, 3, 1] = bad
    by = moved(lambda: depthwise_by(layer), (x, y), record, gradient_method=method)
    assert by <= 1.0 + 1e-5


class Lags(L.Layer):
    """A circular autocorrelation, and what is largest: `gather_nd` has no proof."""

    def call(self, x):
        largest = tf.gather_nd(x, tf.math.top_k(x, 4)[1][..., None], batch_dims=1)
        lags = [keras.ops.mean(x * keras.ops.roll(x, k, axis=-1), -1) for k in range(8)]
        return keras.ops.concatenate([keras.ops.stack(lags, -1), largest], -1)


@pytest.mark.parametrize("bad", [np.nan, -30.0])
def test_a_roll_from_the_last_axis_stays_within_its_example(bad):
    x = (1.0 + 0.3 * GENERATOR.normal(size=(ROWS, 12))).astype("float32")
    rows, record = (
        (x, np.full((ROWS, 1), 9.0, "float32")),
        (np.full(12, bad, "float32"), np.zeros(1)),
    )
    by = moved(lambda: keras.Sequential([keras.Input((12,)), Lags(), L.Dense(1)]), rows, record)
    assert by <= 1.0 + 1e-5


def mixes_elements(pfor_input):
    """What TensorFlow's rule for vectorising `tf.roll` was for a negative axis."""
    return pfor.wrap(tf.roll(pfor_input.stacked_input(0), 1, 0), True)


def test_a_rule_for_vectorising_that_is_wrong_is_noticed_and_a_loop_taken(monkeypatch):
    elements_stay_apart()
    monkeypatch.setitem(pfor._pfor_converter_registry, "Roll", mixes_elements)
    x = (1.0 + 0.3 * GENERATOR.normal(size=(ROWS, 12))).astype("float32")
    rows, record = (x, np.full((ROWS, 1), 9.0, "float32")), (np.full(12, -30.0), np.zeros(1))

    def build():
        return keras.Sequential([keras.Input((12,)), Lags(), L.Dense(1)])

    assert moved(build, rows, record) <= 1.0 + 1e-5
    with pytest.raises(tfdp.UnsupportedModelError, match="vectorises rightly.*'loop'"):
        released(build(), *rows, gradient_method="vectorized")
    assert moved(build, rows, record, gradient_method="loop") <= 1.0 + 1e-5


@tf.custom_gradient
def steeper(value, by):
    return tf.identity(value), lambda d: (d * (1.0 + by), None)


def beyond_50(x):
    return tf.reduce_sum(tf.nn.relu(tf.reduce_max(x, 1) - 50.0), [0, 1])[None, None]


class PowerMean(L.Layer):
    """Its exponent is a weight, for which no operation has a rule: it uses the fallback."""

    by = None

    def build(self, shape):
        self.power = self.add_weight(shape=(1,), initializer="ones", name="power")

    def call(self, x, by=None):
        mean = tf.reduce_mean(tf.maximum(x, 1e-6) ** self.power, [1]) ** (1.0 / self.power)
        return steeper(mean, self.by if by is None else by)


class Around(L.Layer):
    """Hands the statistic over as an attribute."""

    def __init__(self):
        super().__init__()
        self.mean = PowerMean()

    def build(self, shape):
        self.mean.build(shape)

    def call(self, x):
        self.mean.by = beyond_50(x)
        return self.mean(x)


def with_argument(x):
    return PowerMean()(x, L.Lambda(beyond_50, output_shape=(1,))(x))


@pytest.mark.parametrize("outputs", [with_argument, lambda x: Around()(x)])
def test_what_a_layers_second_pass_reads_of_others_is_found(outputs):
    x = keras.Input((4, 3))
    model = keras.Model(x, outputs(x))
    rows = np.full((16, 4, 3), 0.2, "float32"), np.ones((16, 3), "float32")
    with pytest.raises(tfdp.UnsupportedModelError, match="joins the examples"):
        released(model, *rows)


def test_an_initial_state_that_joins_examples_is_found_behind_a_gradient_of_ones_own():
    x = keras.Input((3, 2))
    state = L.Lambda(lambda x: of_the_others_beyond_50(x[:, 0]), output_shape=(2,))(x)
    hidden = L.SimpleRNN(2, activation=None)(x, initial_state=state)
    model = keras.Model(x, L.Dense(1)(Injected()(L.Dense(2)(L.Flatten()(x)), hidden)))
    rows = np.ones((16, 3, 2), "float32"), np.ones((16, 1), "float32")
    with pytest.raises(tfdp.UnsupportedModelError, match="joins the examples"):
        released(model, *rows)


class OnTheDiagonal(L.Layer):
    """Each row times the sign of its place."""

    def call(self, h):
        place = keras.ops.cast(keras.ops.arange(keras.ops.shape(h)[0]) % 2 * 2 - 1, "float32")
        return keras.ops.einsum("ii->i", keras.ops.matmul(h, place[None]))[:, None]


def test_a_diagonal_that_numbers_the_rows_does_not_tell_them_apart():
    assert moved_where_places_have_signs(OnTheDiagonal) <= 1.0 + 1e-5
