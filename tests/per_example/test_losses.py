"""Per-example losses against Keras' own loss on batches of one."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.per_example.losses import PerExampleCompiledLoss, PerExampleLoss

ROWS, STEPS, CLASSES = 6, 4, 3
generator = np.random.default_rng(0)
PROBABILITIES = tf.nn.softmax(generator.normal(size=(ROWS, CLASSES))).numpy().astype("float32")
SPARSE = generator.integers(0, CLASSES, ROWS)
ONE_HOT = np.eye(CLASSES, dtype="float32")[SPARSE]
BINARY = generator.integers(0, 2, (ROWS, CLASSES)).astype("float32")
VALUES = generator.normal(size=(ROWS, CLASSES)).astype("float32")
POSITIVE = np.abs(VALUES) + 0.1
TOKENS = tf.nn.softmax(generator.normal(size=(ROWS, STEPS, CLASSES))).numpy().astype("float32")
TOKEN_IDS = generator.integers(0, CLASSES, (ROWS, STEPS))
losses = keras.losses


def squared(y_true, y_pred):
    return keras.ops.mean(keras.ops.square(y_true - y_pred), axis=-1)


class Cubed(keras.losses.Loss):
    def call(self, y_true, y_pred):
        return keras.ops.mean(keras.ops.abs(y_true - y_pred) ** 3, axis=-1)


CASES = {
    "mse by name": ("mse", VALUES, PROBABILITIES),
    "mae by name": ("mean_absolute_error", VALUES, PROBABILITIES),
    "sparse by name": ("sparse_categorical_crossentropy", SPARSE, PROBABILITIES),
    "sparse column": ("sparse_categorical_crossentropy", SPARSE[:, None], PROBABILITIES),
    "categorical": (losses.CategoricalCrossentropy(label_smoothing=0.1), ONE_HOT, PROBABILITIES),
    "logits": (losses.SparseCategoricalCrossentropy(from_logits=True), SPARSE, VALUES),
    "ignored class": (losses.SparseCategoricalCrossentropy(ignore_class=1), SPARSE, PROBABILITIES),
    "binary": (losses.BinaryCrossentropy(), BINARY, PROBABILITIES),
    "focal": (losses.BinaryFocalCrossentropy(apply_class_balancing=True), BINARY, PROBABILITIES),
    "categorical focal": (losses.CategoricalFocalCrossentropy(), ONE_HOT, PROBABILITIES),
    "huber": (losses.Huber(0.3), VALUES, PROBABILITIES),
    "log cosh": (losses.LogCosh(), VALUES, PROBABILITIES),
    "hinge": (losses.Hinge(), BINARY, VALUES),
    "squared hinge": (losses.SquaredHinge(), BINARY, VALUES),
    "categorical hinge": (losses.CategoricalHinge(), ONE_HOT, VALUES),
    "poisson": (losses.Poisson(), POSITIVE, PROBABILITIES),
    "kl": (losses.KLDivergence(), ONE_HOT, PROBABILITIES),
    "cosine": (losses.CosineSimilarity(), VALUES, PROBABILITIES),
    "msle": (losses.MeanSquaredLogarithmicError(), POSITIVE, PROBABILITIES),
    "mape": (losses.MeanAbsolutePercentageError(), POSITIVE, PROBABILITIES),
    "function": (squared, VALUES, PROBABILITIES),
    "class": (Cubed(), VALUES, PROBABILITIES),
    "crossentropy sparse": ("crossentropy", SPARSE, PROBABILITIES),
    "crossentropy one-hot": ("crossentropy", ONE_HOT, PROBABILITIES),
    "crossentropy binary": ("crossentropy", BINARY[:, :1], PROBABILITIES[:, :1]),
    "tokens": ("sparse_categorical_crossentropy", TOKEN_IDS, TOKENS),
    "sum of tokens": (losses.SparseCategoricalCrossentropy(reduction="sum"), TOKEN_IDS, TOKENS),
    "images": ("mse", np.stack([VALUES] * 2, 1), np.stack([PROBABILITIES] * 2, 1)),
}


def keras_one_by_one(loss, y, y_pred, sample_weight=None, mask=None):
    """Keras' own loss on each example as a batch of one."""
    if isinstance(loss, str) and loss == "crossentropy":
        kind = {1: "binary", CLASSES: "categorical"}[y_pred.shape[-1]]
        loss = f"sparse_{kind}_crossentropy" if y.ndim < y_pred.ndim else f"{kind}_crossentropy"
    loss = losses.get(loss)
    if not isinstance(loss, losses.Loss):
        loss = losses.LossFunctionWrapper(loss) if hasattr(losses, "LossFunctionWrapper") else loss
    values = []
    for row in range(len(y_pred)):
        one = slice(row, row + 1)
        predicted = tf.constant(y_pred[one])
        if mask is not None:
            keras.src.backend.set_keras_mask(predicted, tf.constant(mask[one]))
        weight = None if sample_weight is None else sample_weight[one]
        if isinstance(loss, losses.Loss):
            values.append(float(loss(y[one], predicted, sample_weight=weight)))
        else:
            weighted = loss(y[one], predicted) * (1.0 if weight is None else weight)
            values.append(float(tf.reduce_mean(weighted)))
    return np.array(values)


@pytest.mark.parametrize("name", sorted(CASES))
def test_per_example_losses_equal_keras_on_batches_of_one(name):
    loss, y, y_pred = CASES[name]
    found = PerExampleLoss(loss)(tf.constant(y), tf.constant(y_pred))
    assert found.shape == (ROWS,)
    np.testing.assert_allclose(found, keras_one_by_one(loss, y, y_pred), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["mse by name", "logits", "function", "tokens", "sum of tokens"])
def test_sample_weight_per_example_scales_its_loss(name):
    loss, y, y_pred = CASES[name]
    weight = np.linspace(0.0, 2.0, ROWS).astype("float32")
    found = PerExampleLoss(loss)(tf.constant(y), tf.constant(y_pred), tf.constant(weight))
    expected = keras_one_by_one(loss, y, y_pred) * weight
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "sum", "mean_with_sample_weight"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_masks_and_weights_per_token_count_within_the_example_alone(reduction, weighted, masked):
    loss = losses.SparseCategoricalCrossentropy(reduction=reduction)
    mask = TOKEN_IDS != 1 if masked else None
    weight = np.linspace(0.1, 2.0, ROWS * STEPS).astype("float32").reshape(ROWS, STEPS)
    weight = weight if weighted else None
    y_pred = tf.constant(TOKENS)
    if masked:
        keras.src.backend.set_keras_mask(y_pred, tf.constant(mask))
    found = PerExampleLoss(loss)(tf.constant(TOKEN_IDS), y_pred, weight)
    expected = keras_one_by_one(loss, TOKEN_IDS, TOKENS, weight, mask)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_fully_masked_example_has_loss_0():
    y_pred = tf.constant(TOKENS)
    keras.src.backend.set_keras_mask(y_pred, tf.zeros([ROWS, STEPS], tf.bool))
    found = PerExampleLoss("sparse_categorical_crossentropy")(tf.constant(TOKEN_IDS), y_pred)
    np.testing.assert_array_equal(found, np.zeros(ROWS))


def test_masks_from_an_embedding_reach_the_loss():
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((STEPS,), dtype="int32"),
            keras.layers.Embedding(CLASSES, 4, mask_zero=True),
            keras.layers.Dense(CLASSES, activation="softmax"),
        ]
    )
    model.compile("sgd", loss="sparse_categorical_crossentropy")
    ids = tf.constant(TOKEN_IDS, tf.int32)
    found, _ = PerExampleCompiledLoss(model)(ids, model(ids))
    expected = []
    for row in range(ROWS):
        y_pred = model(ids[row : row + 1])
        expected.append(float(model._compile_loss(ids[row : row + 1], y_pred)))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


OUTPUTS = {
    "list": (["mse", "mae"], [0.5, 2.0]),
    "list without weights": (["mse", "mae"], None),
    "dict": ({"a": "mse", "b": "mae"}, {"a": 0.5, "b": 2.0}),
    "one output without loss": ({"a": "mse", "b": None}, None),
    "one loss for all": ("mse", None),
}


@pytest.mark.parametrize("name", sorted(OUTPUTS))
def test_several_outputs_add_up_with_their_weights(name):
    loss, loss_weights = OUTPUTS[name]
    inputs = keras.Input((CLASSES,))
    keras.utils.set_random_seed(1)
    outputs = {n: keras.layers.Dense(2, name=n)(inputs) for n in ("a", "b")}
    lists = not isinstance(loss, dict)
    model = keras.Model(inputs, list(outputs.values()) if lists else outputs)
    model.compile("sgd", loss=loss, loss_weights=loss_weights)
    y = [VALUES[:, :2], VALUES[:, 1:]]
    y = y if lists else dict(zip(("a", "b"), y, strict=True))
    y = tf.nest.map_structure(tf.constant, y)
    found, _ = PerExampleCompiledLoss(model)(y, model(VALUES))
    expected = []
    for row in range(ROWS):
        one = slice(row, row + 1)
        y_one = tf.nest.map_structure(lambda t: t[one], y)  # noqa: B023
        expected.append(float(model._compile_loss(y_one, model(VALUES[one]))))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_no_example_changes_another_examples_loss():
    loss = PerExampleLoss(losses.SparseCategoricalCrossentropy(ignore_class=1))
    y = TOKEN_IDS.copy()
    before = loss(tf.constant(y), tf.constant(TOKENS))
    y[1:] = 1  # ignored everywhere else
    after = loss(tf.constant(y), tf.constant(TOKENS))
    np.testing.assert_array_equal(before[0], after[0])


def test_the_mean_over_a_batch_is_taken_of_each_example_without_a_warning(recwarn):
    def mean_of_batch(y_true, y_pred):
        return keras.ops.mean(keras.ops.square(y_true - y_pred))

    found = PerExampleLoss(mean_of_batch)(tf.constant(VALUES), tf.constant(PROBABILITIES))
    np.testing.assert_allclose(found, ((VALUES - PROBABILITIES) ** 2).mean(-1), rtol=1e-5)
    assert not [w for w in recwarn if "single examples" in str(w.message)]


def test_a_loss_whose_rank_the_graph_does_not_tell_is_taken_of_each_example():
    def squares(y_true, y_pred):
        found = tf.square(y_true - y_pred)
        return tf.reshape(found, tf.boolean_mask(tf.shape(found), [True, True]))

    found = tf.function(PerExampleLoss(squares))(tf.constant(VALUES), tf.constant(PROBABILITIES))
    np.testing.assert_allclose(found, ((VALUES - PROBABILITIES) ** 2).mean(-1), rtol=1e-5)


def test_a_ratio_of_sums_over_the_batch_is_taken_of_each_example_with_a_warning():
    with pytest.warns(UserWarning, match="(?s)Expected.*mean.*Received: 'dice'.*alone"):
        PerExampleLoss("dice")(tf.constant(BINARY), tf.constant(PROBABILITIES))


@pytest.mark.parametrize("classes", [2, 3, 12])
def test_a_loss_that_is_constant_for_examples_of_one_class_is_not_one_that_compares(classes):
    """Balanced by the share of each class, which of a few targets is often all or nothing."""

    def balanced(y_true, y_pred):
        share, p = keras.ops.mean(1.0 - y_true), keras.ops.clip(y_pred, 1e-6, 1.0 - 1e-6)
        ones, zeros = y_true * keras.ops.log(p), (1.0 - y_true) * keras.ops.log(1.0 - p)
        return -keras.ops.mean(share * ones + (1.0 - share) * zeros)

    y, p = np.tile([[1.0, 0.0]], (ROWS, classes))[:, :classes], np.full((ROWS, classes), 0.5)
    with pytest.warns(UserWarning, match="for each example alone"):
        found = PerExampleLoss(balanced)(tf.constant(y, "float32"), tf.constant(p, "float32"))
    expected = -2.0 * np.mean(1.0 - y[0]) * np.mean(y[0]) * np.log(0.5)
    np.testing.assert_allclose(found, np.full(ROWS, expected), rtol=1e-5)


def test_one_value_that_compares_examples_is_refused():
    def contrastive(y_true, y_pred):
        scores = keras.ops.matmul(y_pred, keras.ops.transpose(y_true))
        own = keras.ops.arange(keras.ops.shape(scores)[0])
        return keras.ops.mean(losses.sparse_categorical_crossentropy(own, scores, from_logits=True))

    with pytest.raises(tfdp.UnsupportedModelError, match="(?s)Received: 'contrastive'.*compares"):
        PerExampleLoss(contrastive)(tf.constant(VALUES), tf.constant(PROBABILITIES))
