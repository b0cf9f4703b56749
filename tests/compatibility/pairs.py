"""Pairs of examples, and graphs whose nodes are the examples."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from tests.compatibility.case import Run, example, images, integers, normal
from tests.compatibility.vision import KERAS_IO


def euclidean_distance(vects):
    x, y = vects
    sum_square = ops.sum(ops.square(x - y), axis=1, keepdims=True)
    return ops.sqrt(ops.maximum(sum_square, keras.backend.epsilon()))


def contrastive(margin=1):
    def contrastive_loss(y_true, y_pred):
        square_pred = ops.square(y_pred)
        margin_square = ops.square(ops.maximum(margin - y_pred, 0))
        return ops.mean((1 - y_true) * square_pred + y_true * margin_square)

    return contrastive_loss


def siamese_run():
    image = layers.Input((12, 12, 1))
    x = layers.Conv2D(4, (5, 5), activation="tanh")(layers.BatchNormalization()(image))
    x = layers.Flatten()(layers.AveragePooling2D(pool_size=(2, 2))(x))
    x = layers.Dense(5, activation="tanh")(layers.BatchNormalization()(x))
    embedding = keras.Model(image, x)
    first, second = layers.Input((12, 12, 1)), layers.Input((12, 12, 1))
    merged = layers.Lambda(euclidean_distance, output_shape=(1,))(
        [embedding(first), embedding(second)]
    )
    outputs = layers.Dense(1, activation="sigmoid")(layers.BatchNormalization()(merged))
    x, y = [images(32, 12, 12, 1), normal(32, 12, 12, 1)], integers(2, 32).astype("float32")
    fit = dict(x=x, y=y, validation_data=(x, y), batch_size=8)
    losses = dict(loss=contrastive(1), metrics=["accuracy"])
    return Run(keras.Model([first, second], outputs), fit, losses, "RMSprop")


def siamese_remedied():
    """The distance is one number, of which no group is left: its normalisation is left out."""
    image = layers.Input((12, 12, 1))
    x = layers.Conv2D(4, (5, 5), activation="tanh")(image)
    x = layers.Flatten()(layers.AveragePooling2D(pool_size=(2, 2))(x))
    x = layers.GroupNormalization(4)(x)
    embedding = keras.Model(image, layers.Dense(5, activation="tanh")(x))
    run = siamese_run()
    first, second = layers.Input((12, 12, 1)), layers.Input((12, 12, 1))
    merged = layers.Lambda(euclidean_distance, output_shape=(1,))(
        [embedding(first), embedding(second)]
    )
    run.model = keras.Model([first, second], layers.Dense(1, activation="sigmoid")(merged))
    return run


@example(
    KERAS_IO,
    "examples/vision/siamese_contrastive.py",
    "siamese network with a contrastive loss that takes a mean; lists of inputs",
    cause="BatchNormalization",
    reason="BatchNormalization mixes the examples of a batch, of one number as well",
    remedy="`GroupNormalization` of many numbers, none of one",
    remedied=siamese_remedied,
)
def siamese():
    return siamese_run()


class EmbeddingModel(keras.Model):
    def train_step(self, data):
        if isinstance(data, tuple):
            data = data[0]
        anchors, positives = data[0], data[1]
        with tf.GradientTape() as tape:
            similarities = tf.einsum(
                "ae,pe->ap", self(anchors, training=True), self(positives, training=True)
            )
            labels = tf.range(4)
            loss = self.compute_loss(y=labels, y_pred=similarities / 0.2, training=True)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss}


class AnchorPositivePairs(keras.utils.PyDataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return images(2, 4, 10, 10, 3)


def embedding_layers():
    inputs = layers.Input(shape=(10, 10, 3))
    x = layers.Conv2D(filters=4, kernel_size=3, strides=2, activation="relu")(inputs)
    x = layers.Dense(units=4)(layers.GlobalAveragePooling2D()(x))
    return inputs, layers.UnitNormalization()(x)


class PerSet(keras.Model):
    """A set of anchors and positives, one of each class, is the example: its axis stays first."""

    def __init__(self):
        super().__init__()
        self.tower = keras.Model(*embedding_layers())

    def call(self, sets):
        anchors = [self.tower(sets[:, 0, i]) for i in range(4)]
        positives = [self.tower(sets[:, 1, i]) for i in range(4)]
        return ops.einsum("bae,bpe->bap", ops.stack(anchors, 1), ops.stack(positives, 1)) / 0.2


def per_set_run():
    fit = dict(x=images(16, 2, 4, 10, 10, 3), y=np.tile(np.arange(4), (16, 1)), batch_size=8)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return Run(PerSet(), fit, dict(loss=loss))


@example(
    KERAS_IO,
    "examples/vision/metric_learning.py",
    "similarities between all pairs of a batch, `PyDataset`, own `train_step`",
    statement=dict(batch_size=4, num_examples=16),
    cause="train_step|rows",
    reason="each image is compared with all others of the batch",
    remedy="make the set of pairs, one of each class, the example",
    remedied=per_set_run,
)
def metric_learning():
    model = EmbeddingModel(*embedding_layers())
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    fit = dict(x=AnchorPositivePairs())
    return Run(model, fit, dict(loss=loss), keras.optimizers.Adam(learning_rate=1e-3))


FEATURES, EDGES = normal(12, 6), np.array([np.arange(12), (np.arange(12) + 1) % 12])


def feed_forward(units):
    return keras.Sequential(
        [layers.BatchNormalization(), layers.Dropout(0.2), layers.Dense(units, "gelu")]
    )


class NodeClassifier(keras.Model):
    """Looks all nodes up in a graph that it holds; an example is the index of one."""

    def __init__(self, units, num_classes):
        super().__init__()
        self.features, self.edges = tf.constant(FEATURES), EDGES
        self.preprocess = feed_forward(units)
        self.prepare = feed_forward(units)
        self.update = feed_forward(units)
        self.compute_logits = layers.Dense(units=num_classes)

    def call(self, input_node_indices):
        x = self.preprocess(self.features)
        messages = self.prepare(tf.gather(x, self.edges[1]))
        gathered = tf.math.unsorted_segment_sum(messages, self.edges[0], num_segments=12)
        x = self.update(tf.concat([x, gathered], axis=1)) + x
        return self.compute_logits(tf.gather(x, input_node_indices))


def nodes_run():
    stop = keras.callbacks.EarlyStopping(monitor="val_acc", patience=50, restore_best_weights=True)
    fit = dict(
        x=np.tile(np.arange(12), 3),
        y=integers(3, 36),
        batch_size=8,
        validation_split=0.15,
        callbacks=[stop],
    )
    losses = dict(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[keras.metrics.SparseCategoricalAccuracy(name="acc")],
    )
    return Run(NodeClassifier(8, 3), fit, losses, keras.optimizers.Adam(0.01))


@example(
    KERAS_IO,
    "examples/graph/gnn_citations.py",
    "papers of one graph that the model holds: what `fit` gets, their numbers and classes, is "
    "protected; features and edges are constants of the model, hence taken as public",
)
def citations():
    return nodes_run()


EXAMPLES = [siamese, metric_learning, citations]
