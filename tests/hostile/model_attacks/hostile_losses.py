"""Hostile losses: what an example's loss is depends on the others of its batch."""

import keras
import tensorflow as tf

from tests.hostile.model_attacks import parts
from tests.hostile.model_attacks.case import hostile

ops = keras.ops
crossentropy = keras.losses.sparse_categorical_crossentropy


def squared(y_true, y_pred):
    return ops.mean(ops.square(y_true - y_pred), axis=-1)


def over_batch_size(y_true, y_pred):
    return squared(y_true, y_pred) / ops.cast(tf.shape(y_true)[0], "float32")


def over_root_of_batch_size(y_true, y_pred):
    return squared(y_true, y_pred) * tf.math.rsqrt(tf.cast(tf.shape(y_true)[0], tf.float32))


def hardest_half(y_true, y_pred):
    """Online hard example mining."""
    losses = squared(y_true, y_pred)
    least = tf.sort(losses)[tf.shape(losses)[0] // 2]
    return tf.where(losses >= least, losses, 0.0)


def focal_over_positives(y_true, y_pred):
    p = ops.sigmoid(y_pred)
    hit = y_true * p + (1.0 - y_true) * (1.0 - p)
    losses = ops.sum(-ops.square(1.0 - hit) * ops.log(hit + 1e-6), axis=-1)
    return losses / (1.0 + ops.sum(y_true))


def info_nce(y_true, y_pred):
    """Each prediction against the targets of all examples."""
    scores = ops.matmul(y_pred, ops.transpose(y_true))
    return crossentropy(ops.arange(ops.shape(scores)[0]), scores, from_logits=True)


def batch_hard(y_true, y_pred):
    """A triplet loss with the farthest of the same class and the nearest of another."""
    far = tf.reduce_sum(tf.square(y_pred[:, None] - y_pred[None]), -1)
    same = y_true[:, None] == y_true[None]
    positive = tf.reduce_max(tf.where(same, far, 0.0), 1)
    negative = tf.reduce_min(tf.where(same, 10.0, far), 1)
    return tf.nn.softplus(positive - negative)


def class_balanced(y_true, y_pred):
    same = ops.cast(ops.equal(y_true[:, None], y_true[None]), "float32")
    return crossentropy(y_true, y_pred, from_logits=True) / ops.sum(same, axis=1)


def rare_class(y_true, y_pred):
    """More weight to all where the batch has an example of the last class."""
    label = ops.cast(y_true, "float32")
    seen = ops.sum(ops.cast(label > 6.0, "float32"))
    return crossentropy(y_true % 2, y_pred, from_logits=True) * (1.0 + seen)


def pairwise_ranking(y_true, y_pred):
    order = ops.sign(y_true[:, None, 0] - y_true[None, :, 0])
    margin = y_pred[:, None, 0] - y_pred[None, :, 0]
    return ops.mean(ops.relu(1.0 - order * margin), axis=1)


def correlation(y_true, y_pred):
    centred = y_pred - ops.mean(y_pred, axis=0)
    return -ops.sum(y_true * centred, axis=-1) / (ops.norm(centred) + 1.0)


def above_the_largest(y_true, y_pred):
    """A penalty where an error is above a hundred times the batch's mean error."""
    losses = squared(y_true, y_pred)
    return losses + ops.relu(ops.max(losses) - 50.0)


def nine_classes(generator, rows):
    x, _ = parts.numbers(generator, rows)
    return x, generator.integers(0, 9, rows).astype("int32")


def far_targets(generator, rows):
    x, y = parts.numbers(generator, rows)
    return x, 20.0 * y


def beside(name, loss, why, data=parts.numbers, build=parts.dense, law="others", **kwargs):
    return hostile(name, build, data, loss, why, sensitive_to=law, **kwargs)


def with_dropout():
    return parts.dense(keras.layers.Dropout(0.5))


CASES = [
    beside(
        "over the batch size beside dropout",
        over_batch_size,
        "one more record shrinks the losses of all others",
        build=with_dropout,
        law="size",
        random=True,
    ),
    beside(
        "over the root of the batch size beside noise",
        over_root_of_batch_size,
        "one more record shrinks the losses of all others",
        build=lambda: parts.dense(keras.layers.GaussianNoise(0.1)),
        law="size",
        random=True,
    ),
    beside("hardest half of the batch", hardest_half, "who is hard depends on the others"),
    beside(
        "focal over the positives of the batch",
        focal_over_positives,
        "one positive record shrinks the losses of all others",
        data=parts.binary,
    ),
    beside("targets of others as negatives", info_nce, "a contrastive loss"),
    beside("batch-hard triplets", batch_hard, "a contrastive loss", data=parts.classes),
    beside(
        "class-balanced by the batch",
        class_balanced,
        "the weight of a class counts the batch's examples of it",
        data=parts.classes,
    ),
    beside(
        "more weight beside a rare class",
        rare_class,
        "random labels 0 and 1 are never of that class",
        data=nine_classes,
        law="others in some draw",
    ),
    beside("pairwise ranking", pairwise_ranking, "each is compared with all others"),
    beside("correlation over the batch", correlation, "a mean and a norm over the batch"),
    beside(
        "penalty for the batch's largest error",
        above_the_largest,
        "random targets in [0, 1) give no error that large",
        data=far_targets,
    ),
]
