"""Every loss of Keras, by name, function and class, equals Keras' own on batches of one."""

import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_lowrank_dp.per_example.losses import PerExampleCompiledLoss

ROWS, STEPS, CLASSES = 2, 3, 4
# Shapes of targets and outputs of one example, as Keras accepts them.
ALIKE = [
    ((), ()),
    ((), (1,)),
    ((1,), ()),
    ((1,), (1,)),
    ((CLASSES,), (CLASSES,)),
    ((STEPS,), (STEPS, 1)),
    ((STEPS, 1), (STEPS,)),
    ((STEPS, CLASSES), (STEPS, CLASSES)),
    ((STEPS, STEPS), (STEPS, STEPS, 1)),
    ((STEPS, STEPS, 1), (STEPS, STEPS, 1)),
    ((2, STEPS, STEPS, 2), (2, STEPS, STEPS, 2)),
]
SPARSE = [
    ((), (CLASSES,)),
    ((1,), (CLASSES,)),
    ((STEPS,), (STEPS, CLASSES)),
    ((STEPS, 1), (STEPS, CLASSES)),
    ((STEPS, STEPS), (STEPS, STEPS, CLASSES)),
]
SHAPES = {
    "sparse_categorical_crossentropy": SPARSE,
    "categorical_generalized_cross_entropy": SPARSE[:2],
}
CASES = {
    name: SHAPES.get(name, ALIKE)
    for name, value in vars(keras.losses).items()
    if inspect.isfunction(value)
    and name not in ("get", "serialize", "deserialize")
    # Circle loss compares examples; CTC has a test of its own.
    and name not in ("circle", "ctc")
}
FORMS = ["name", "function", "class", "custom function", "custom class"]


def in_form(name, form):
    """The loss as users may give it to `compile`."""
    function = getattr(keras.losses, name)
    if form == "name":
        return name
    if form == "function":
        return function
    if form == "custom function":
        return lambda y_true, y_pred: function(y_true, y_pred)
    if form == "class":
        return class_of(name)()

    class Custom(keras.losses.Loss):
        def call(self, y_true, y_pred):
            return function(y_true, y_pred)

    return Custom()


def class_of(name):
    wanted = name.replace("_", "")
    return next(value for key, value in vars(keras.losses).items() if key.lower() == wanted)


def arrays(name, y_shape, p_shape, seed=0):
    generator = np.random.default_rng(seed)
    y_pred = generator.uniform(0.1, 0.9, (ROWS, *p_shape)).astype("float32")
    if name in SHAPES:
        return generator.integers(0, CLASSES, (ROWS, *y_shape)).astype("int32"), y_pred
    return generator.integers(0, 2, (ROWS, *y_shape)).astype("float32"), y_pred


def compiled(loss, **arguments):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", loss=loss, **arguments)
    return model


def keras_alone(loss, y, y_pred, sample_weight=None):
    """Keras' own loss of each example as a batch of one, and its gradients."""
    values, gradients, model = [], [], compiled(loss)
    for row in range(len(y_pred)):
        own = slice(row, row + 1)
        predicted = tf.constant(y_pred[own])
        weight = None if sample_weight is None else tf.constant(sample_weight[own])
        with tf.GradientTape() as tape:
            tape.watch(predicted)
            value = model.compute_loss(None, tf.constant(y[own]), predicted, weight)
        values.append(np.sum(value))
        gradients.append(np.asarray(tape.gradient(value, predicted))[0])
    return np.array(values), np.array(gradients)


def ours(loss, y, y_pred, sample_weight=None):
    """Values and gradients of a whole batch, traced without its size."""
    per_example = PerExampleCompiledLoss(compiled(loss))

    @tf.function(autograph=False)
    def values(*batch):
        y_pred = batch[1]
        with tf.GradientTape() as tape:
            tape.watch(y_pred)
            losses, _ = per_example(*batch)
        return losses, tape.gradient(losses, y_pred)

    batch = [t for t in (y, y_pred, sample_weight) if t is not None]
    specs = [tf.TensorSpec([None, *t.shape[1:]], t.dtype) for t in batch]
    return values.get_concrete_function(*specs)(*map(tf.constant, batch))


def accepted(loss, y, y_pred, *more):
    try:
        return keras_alone(loss, y, y_pred, *more)
    except Exception:
        return None


@pytest.mark.parametrize(
    ("name", "form"),
    # The generalised cross-entropy has no name, and its function another argument without default.
    [(n, f) for n in sorted(CASES) for f in FORMS if f == "class" or "generalized" not in n],
)
def test_value_and_gradient_equal_keras_on_batches_of_one(name, form):
    loss, compared = in_form(name, form), 0
    for y_shape, p_shape in CASES[name] if form == "class" else CASES[name][1:4:2]:
        y, y_pred = arrays(name, y_shape, p_shape)
        expected = accepted(loss, y, y_pred)
        if expected is None:
            continue
        compared += 1
        values, gradients = ours(loss, y, y_pred)
        case = f"{name} as {form} with targets {y_shape}, outputs {p_shape}"
        np.testing.assert_allclose(values, expected[0], 1e-5, 1e-6, err_msg=case)
        np.testing.assert_allclose(gradients, expected[1], 1e-4, 1e-6, err_msg=case)
    assert compared >= (2 if form == "class" else 1)


@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "sum", "mean_with_sample_weight"])
@pytest.mark.parametrize(
    ("p_shape", "w_shape"),
    [((4,), ()), ((4,), (1,)), ((3, 4), ()), ((3, 4), (3,)), ((3, 4), (3, 1)), ((4,), (3,))],
)
def test_weights_of_any_rank_count_as_in_a_batch_of_one(reduction, p_shape, w_shape):
    y, y_pred = arrays("", p_shape, p_shape)
    weight = np.random.default_rng(1).uniform(0.1, 2.0, (ROWS, *w_shape)).astype("float32")
    loss = keras.losses.MeanSquaredError(reduction=reduction)
    expected = keras_alone(loss, y, y_pred, weight)
    values, gradients = ours(loss, y, y_pred, weight)
    np.testing.assert_allclose(values, expected[0], 1e-5)
    np.testing.assert_allclose(gradients, expected[1], 1e-5)


def test_ctc_equals_keras_on_batches_of_one():
    generator = np.random.default_rng(0)
    y = generator.integers(1, CLASSES, (ROWS, 2)).astype("int32")
    y_pred = generator.normal(size=(ROWS, 6, CLASSES)).astype("float32")
    expected = keras_alone(keras.losses.CTC(), y, y_pred)
    values, gradients = ours(keras.losses.CTC(), y, y_pred)
    np.testing.assert_allclose(values, expected[0], 1e-5)
    np.testing.assert_allclose(gradients, expected[1], 1e-4, 1e-6)


def mean_over_selected_positions(y_true, y_pred):
    chosen = tf.not_equal(y_true, 0.0)
    errors = tf.boolean_mask(y_true, chosen) - tf.boolean_mask(y_pred, chosen)
    return tf.reduce_mean(tf.square(errors))


def one_minus_similarity(y_true, y_pred):
    return 1.0 - tf.reduce_mean(tf.image.ssim(y_true, y_pred, 1.0, filter_size=3))


class OwnCall(keras.losses.Loss):
    def __call__(self, y_true, y_pred, sample_weight=None):
        return keras.ops.mean(keras.ops.square(y_true - y_pred))


@pytest.mark.parametrize("loss", [mean_over_selected_positions, one_minus_similarity, OwnCall()])
@pytest.mark.filterwarnings("ignore:Expected a loss that is the mean")
def test_one_value_for_a_batch_is_taken_of_each_example_alone(loss):
    y, y_pred = arrays("", (6, 6, 1), (6, 6, 1))
    expected = keras_alone(loss, y, y_pred)
    values, gradients = ours(loss, y, y_pred)
    np.testing.assert_allclose(values, expected[0], 1e-5)
    np.testing.assert_allclose(gradients, expected[1], 1e-4, 1e-7)
