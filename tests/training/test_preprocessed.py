"""KerasHub's tasks preprocess what was drawn: each row by itself, with secret random numbers."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.training.preprocessed import _is_stock, preprocessed

keras_hub = pytest.importorskip("keras_hub")
tensor_utils = pytest.importorskip("keras_hub.src.utils.tensor_utils")
preprocessing_function = tensor_utils.preprocessing_function

ROWS, WIDTH, CLIP, RATE = 32, 8, 0.3, 1.0
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{n}" for n in range(20))]

MIXING = {
    "the largest": lambda x: x / tf.reduce_max(x),
    "mean and deviation": lambda x: (x - tf.reduce_mean(x, 0)) / tf.math.reduce_std(x, 0),
    "mixed": lambda x: 0.5 * x + 0.5 * tf.reverse(x, [0]),
}


class Own(keras_hub.models.Preprocessor):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def call(self, x, y=None, sample_weight=None):
        return keras.utils.pack_x_y_sample_weight(self.function(x), y, sample_weight)


class Task(keras_hub.models.Task):
    def __init__(self, function, width=WIDTH):
        inputs = keras.Input((width,))
        super().__init__(inputs, keras.layers.Dense(1)(inputs))
        self.preprocessor = Own(function)


def compiled(model):
    tfdp.make_private(model)
    inner = keras.optimizers.SGD(RATE)
    model.compile(
        tfdp.DPSGDOptimizer(inner, l2_norm_clip=CLIP, noise_multiplier=1e-6, delta=1e-5),
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
        metrics=[],
    )
    return model


def released(function, x, y):
    """What one step on all rows releases, in clips."""
    keras.utils.set_random_seed(0)
    return released_by(Task(function), x, y)


def released_by(model, x, y):
    compiled(model)
    before = model.get_weights()
    model.fit(x, y, batch_size=len(x), steps_per_epoch=1, verbose=0)
    moves = [b - w for b, w in zip(before, model.get_weights(), strict=True)]
    return np.concatenate([move.ravel() for move in moves]) * len(x) / RATE / CLIP


@pytest.mark.parametrize("how", MIXING)
def test_a_preprocessor_of_ones_own_sees_one_row_at_a_time(how):
    """On the whole draw, a record less moved 4 to 38 clips."""
    generator = np.random.default_rng(0)
    x = generator.uniform(0.0, 1.0, (ROWS, WIDTH)).astype("float32")
    y = np.float32(x[:, :1] > 0.5)
    x[0] = 1000.0
    difference = released(MIXING[how], x, y) - released(MIXING[how], x[1:], y[1:])
    assert np.linalg.norm(difference) <= 1.0 + 1e-3


def scaled(x):
    return x / tf.reduce_max(x)


class OwnRescaling(keras.layers.Rescaling):
    def call(self, x):
        return scaled(x)


class Images(keras_hub.models.Task):
    """With KerasHub's own preprocessor, of which one thing is the user's."""

    def __init__(self, converter):
        inputs = keras.Input((4, 4, 3))
        super().__init__(inputs, keras.layers.Dense(1)(keras.layers.Flatten()(inputs)))
        self.preprocessor = keras_hub.models.ImageClassifierPreprocessor(converter)


def with_a_method_of_its_own(converter):
    model = Images(converter)
    model.preprocess_samples = lambda x, y=None, sample_weight=None: (
        keras.utils.pack_x_y_sample_weight(scaled(x), y, sample_weight)
    )
    return model


def with_a_call_of_its_own(converter):
    model = Images(converter)
    model.preprocessor.call = lambda x, y=None, sample_weight=None: (
        keras.utils.pack_x_y_sample_weight(scaled(x), y, sample_weight)
    )
    return model


def scaling(method):
    """A decorator, which says that it is what it wraps."""

    @functools.wraps(method)
    def decorated(self, x, *args, **kwargs):
        return method(self, scaled(x), *args, **kwargs)

    return decorated


class Decorated(Images):
    preprocess_samples = scaling(keras_hub.models.Task.preprocess_samples)


class DecoratedByKerasHub(Images):
    @preprocessing_function
    def preprocess_samples(self, x, y=None, sample_weight=None):
        return keras.utils.pack_x_y_sample_weight(scaled(x), y, sample_weight)


def with_the_method_of_another(converter):
    return Images(Images(converter).preprocessor.call)


@pytest.mark.parametrize(
    ("build", "converter"),
    [
        (Decorated, None),
        (DecoratedByKerasHub, None),
        (with_the_method_of_another, scaled),
        (Images, scaled),
        (Images, OwnRescaling(1.0)),
        (with_a_method_of_its_own, None),
        (with_a_call_of_its_own, None),
    ],
)
def test_what_a_user_puts_into_a_stock_preprocessor_sees_one_row_at_a_time(build, converter):
    """A function as image converter, as KerasHub documents it, moved 9 clips for 1."""
    generator = np.random.default_rng(0)
    x = generator.uniform(0.0, 1.0, (ROWS, 4, 4, 3)).astype("float32")
    y = np.float32(generator.integers(0, 2, (ROWS, 1)))
    x[0] *= 1000.0
    assert_one_clip(lambda: build(converter), x, y)


def assert_one_clip(build, x, y):
    """That the first row less moves one clip."""
    sums = []
    for rows in (x, y), (x[1:], y[1:]):
        keras.utils.set_random_seed(0)
        sums.append(released_by(build(), *rows))
    assert np.linalg.norm(sums[0] - sums[1]) <= 1.0 + 1e-3


class Descriptor:
    def __get__(self, instance, owner=None):
        return functools.partial(of_all, instance)


def of_all(self, x, y=None, sample_weight=None):
    return keras.utils.pack_x_y_sample_weight(scaled(x), y, sample_weight)


PATCHES = {
    "a decorator": lambda call: scaling(call),
    "KerasHub's decorator": lambda call: preprocessing_function(scaling(call)),
    "tf.function": lambda call: tf.function(of_all),
    "a partial method": lambda call: functools.partialmethod(of_all),
    "a cache": lambda call: functools.lru_cache(of_all),
    "a descriptor": lambda call: Descriptor(),
    "a property": lambda call: property(lambda self: functools.partial(of_all, self)),
}


@pytest.mark.parametrize("patch", PATCHES)
def test_a_class_of_keras_hub_that_was_patched_is_not_stock(patch, monkeypatch):
    """On the whole draw, one record less moved 31 clips."""
    kind = keras_hub.models.ImageClassifierPreprocessor
    assert _is_stock(Images(None))
    monkeypatch.setattr(kind, "call", PATCHES[patch](kind.call))
    assert not _is_stock(Images(None))


STATE = {
    "a variable": lambda state: state["variable"].assign_add,
    "a queue": lambda state: lambda x: (state["queue"].enqueue(x), x)[1],
    "a table": lambda state: lambda x: (state["table"].insert([0], x[0, :1]), x)[1],
    "Python": lambda state: lambda x: tf.numpy_function(lambda a: a, [x], tf.float32),
}


@pytest.mark.parametrize("kind", STATE)
def test_a_preprocessor_that_may_keep_something_of_a_row_is_refused(kind):
    """A running mean of what came before had moved 34 clips."""
    state = {
        "variable": tf.Variable(tf.zeros((1, WIDTH))),
        "queue": tf.queue.FIFOQueue(99, [tf.float32], [[1, WIDTH]]),
        "table": tf.lookup.experimental.DenseHashTable(tf.int64, tf.float32, -1.0, -1, -2),
    }
    write = STATE[kind](state)
    model = compiled(Task(lambda x: tf.reshape(write(x), [1, WIDTH])))
    x, y = np.ones((8, WIDTH), "float32"), np.ones((8, 1), "float32")
    with pytest.raises(tfdp.UnsupportedModelError, match="may keep something of a row"):
        model.fit(x, y, batch_size=4, verbose=0)


def test_layers_that_draw_or_are_not_built_yet_preprocess():
    layers = keras.layers.RandomFlip(), keras.layers.Normalization(mean=0.0, variance=1.0)
    for layer in layers:
        model = Images(None)
        model.preprocessor = layer
        x = np.random.default_rng(0).normal(size=(8, 4, 4, 3)).astype("float32")
        compiled(model).fit(x, np.ones((8, 1), "float32"), batch_size=4, verbose=0)
        assert tfdp.privacy_spent(model) > 0.0


def test_what_it_makes_has_one_public_shape_or_is_refused_with_a_remedy_that_works():
    def numbers(x, **shape):
        return tf.strings.to_number(tf.strings.split(x).to_tensor("0", **shape))

    x, y = np.array(["1 2 3", "4"] * 8), np.ones((16, 1), "float32")
    with pytest.raises(ValueError, match="one public shape.*preprocessor of"):
        compiled(Task(numbers, 4)).fit(x, y, batch_size=4, verbose=0)
    model = compiled(Task(lambda x: numbers(x, shape=(None, 4)), 4))
    model.fit(x, y, batch_size=4, verbose=0)


def masked_lm():
    settings = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 8}
    backbone = keras_hub.models.BertBackbone(len(WORDS), max_sequence_length=16, **settings)
    preprocessor = keras_hub.models.BertMaskedLMPreprocessor(
        keras_hub.models.BertTokenizer(vocabulary=WORDS),
        sequence_length=16,
        mask_selection_rate=0.3,
        mask_selection_length=4,
    )
    return keras_hub.models.BertMaskedLM(backbone, preprocessor=preprocessor)


def test_masks_that_a_preprocessor_draws_follow_no_seed():
    """With one that is known, a record less exchanged the masks of all others: 10 clips."""
    model, sentence = masked_lm(), " ".join(WORDS[5:17])
    batch = {"x": [sentence] * 64, "presence": tf.ones(64)}
    positions = []
    for _ in range(2):
        keras.utils.set_random_seed(42)
        made = preprocessed(model, tf.data.Dataset.from_tensors(batch))
        positions.append(next(iter(made))["x"]["mask_positions"].numpy())
    assert positions[0].shape == (64, 4)
    same = np.mean(np.all(positions[0] == positions[1], axis=1))
    assert same < 0.3  # of sorted threes of twelve words, one in 220 is the same by chance
