"""Honest losses: sums, ranks and counts within one example."""

import keras
import tensorflow as tf

from tests.hostile.model_attacks import parts
from tests.hostile.model_attacks.case import honest

L, ops = keras.layers, keras.ops
CLASS_WEIGHTS = (0.5, 2.0)


def position_errors(y_true, y_pred):
    return ops.square(y_true - y_pred)


def hardest_positions(y_true, y_pred):
    """The mean of each example's three largest errors."""
    return ops.mean(ops.top_k(position_errors(y_true, y_pred), 3)[0], axis=-1)


def over_own_length(y_true, y_pred):
    """Positions with a positive target count."""
    counted = ops.cast(y_true > 0.0, y_pred.dtype)
    errors = counted * position_errors(y_true, y_pred)
    return ops.sum(errors, axis=-1) / (1.0 + ops.sum(counted, axis=-1))


def over_number_of_positions(y_true, y_pred):
    return ops.sum(position_errors(y_true, y_pred), -1) / ops.cast(ops.shape(y_true)[1], "float32")


def own_positions_as_negatives(y_true, y_pred):
    """Each position of an example against the others of the same."""
    scores = y_pred[:, :, None] * y_true[:, None, :]
    diagonal = tf.linalg.diag_part(ops.log_softmax(scores, axis=-1))
    return -ops.mean(diagonal, axis=-1)


def ranking_of_positions(y_true, y_pred):
    order = ops.sign(y_true[:, :, None] - y_true[:, None, :])
    margin = y_pred[:, :, None] - y_pred[:, None, :]
    return ops.mean(ops.relu(1.0 - order * margin), axis=(1, 2))


def own_triplet(y_true, y_pred):
    """Anchor, positive and negative are parts of one record."""
    anchor, positive, negative = ops.split(y_pred, 3, axis=-1)
    near = ops.sum(ops.square(anchor - positive), axis=-1)
    far = ops.sum(ops.square(anchor - negative), axis=-1)
    return ops.softplus(near - far) + 0.0 * ops.sum(y_true, axis=-1)


def own_correlation(y_true, y_pred):
    centred = y_pred - ops.mean(y_pred, axis=-1, keepdims=True)
    return -ops.sum(y_true * centred, -1) / (ops.sqrt(ops.sum(ops.square(centred), -1)) + 1.0)


def focal_over_own_positives(y_true, y_pred):
    p = ops.sigmoid(y_pred)
    hit = y_true * p + (1.0 - y_true) * (1.0 - p)
    losses = ops.sum(-ops.square(1.0 - hit) * ops.log(hit + 1e-6), axis=-1)
    return losses / (1.0 + ops.sum(y_true, axis=-1))


def balanced_by_constants(y_true, y_pred):
    losses = keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)
    return losses * ops.take(ops.convert_to_tensor(CLASS_WEIGHTS), ops.cast(y_true, "int32"))


def own_rare_class(y_true, y_pred):
    label = ops.cast(y_true, "float32")
    losses = keras.losses.sparse_categorical_crossentropy(y_true % 2, y_pred, from_logits=True)
    return losses * (1.0 + ops.cast(label > 6.0, "float32"))


def largest_own_error(y_true, y_pred):
    errors = position_errors(y_true, y_pred)
    return ops.mean(errors, axis=-1) + ops.relu(ops.max(errors, axis=-1) - 50.0)


def nine_classes(generator, rows):
    x, _ = parts.numbers(generator, rows)
    return x, generator.integers(0, 9, rows).astype("int32")


def six_targets(generator, rows):
    x, _ = parts.numbers(generator, rows)
    return x, generator.normal(size=(rows, parts.LENGTH)).astype("float32")


def far_targets(generator, rows):
    x, y = six_targets(generator, rows)
    return x, 20.0 * y


def six_outputs():
    layers = [L.Dense(parts.WIDTH, activation="tanh"), L.Dense(parts.LENGTH)]
    return keras.Sequential([keras.Input((parts.FEATURES,)), *layers])


def with_sigmoid():
    return keras.Sequential([keras.Input((parts.FEATURES,)), L.Dense(2, activation="sigmoid")])


def with_dropout():
    return parts.dense(L.Dropout(0.5))


class Penalty(L.Layer):
    """Adds a loss for each example."""

    def call(self, x):
        self.add_loss(0.1 * ops.sum(ops.square(x), axis=-1))
        return x


def own(name, loss, why, data=six_targets, build=six_outputs, **kwargs):
    return honest(name, build, data, loss, why, **kwargs)


CASES = [
    own("hardest of own positions", hardest_positions, "who is hard is decided in one example"),
    own("over own length", over_own_length, "the count is of the example's positions"),
    own("over the number of positions", over_number_of_positions, "a shape, not the batch's"),
    own("own positions as negatives", own_positions_as_negatives, "contrast within an example"),
    own("ranking of own positions", ranking_of_positions, "pairs within an example"),
    own("triplet in one record", own_triplet, "all three are one record's"),
    own("correlation over own positions", own_correlation, "mean and norm of one example"),
    own("penalty for own largest error", largest_own_error, "a maximum in one", far_targets),
    own(
        "focal over own positives",
        focal_over_own_positives,
        "the count is of the example's labels",
        parts.binary,
        parts.dense,
    ),
    own("stock focal", "binary_focal_crossentropy", "no counts", parts.binary, with_sigmoid),
    own(
        "label smoothing",
        keras.losses.BinaryCrossentropy(from_logits=True, label_smoothing=0.1),
        "labels move towards a constant",
        parts.binary,
        parts.dense,
    ),
    own(
        "classes balanced by constants",
        balanced_by_constants,
        "public weights",
        parts.classes,
        parts.dense,
    ),
    own("more weight for own rare class", own_rare_class, "own label", nine_classes, parts.dense),
    own(
        "Huber beside dropout",
        keras.losses.Huber(),
        "nothing joins rows",
        parts.numbers,
        with_dropout,
        random=True,
    ),
    own(
        "added loss of each example",
        "mse",
        "one value per example",
        parts.numbers,
        lambda: parts.dense(Penalty()),
    ),
]
