"""Rows of tables: own losses and metrics, weights of classes, look-ups, recommenders, forests."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from tests.compatibility.case import Run, example, images, integers, normal, one_hot
from tests.compatibility.vision import KERAS_IO

TENSORFLOW = "tensorflow/docs"
GERON = "ageron/handson-ml3"
HEATON = "jeffheaton/t81_558_deep_learning"


@example(
    TENSORFLOW,
    "site/en/tutorials/structured_data/imbalanced_data.ipynb",
    "fraud: nine metrics, initial bias of the output, `class_weight`, early stopping on `val_prc`",
)
def imbalanced():
    bias = keras.initializers.Constant(-2.0)
    model = keras.Sequential(
        [
            layers.Dense(8, activation="relu", input_shape=(6,)),
            layers.Dropout(0.5),
            layers.Dense(1, activation="sigmoid", bias_initializer=bias),
        ]
    )
    of = keras.metrics
    metrics = [
        of.BinaryCrossentropy(name="cross entropy"),
        of.MeanSquaredError(name="Brier score"),
        of.TruePositives(name="tp"),
        of.FalseNegatives(name="fn"),
        of.BinaryAccuracy(name="accuracy"),
        of.Precision(name="precision"),
        of.Recall(name="recall"),
        of.AUC(name="auc"),
        of.AUC(name="prc", curve="PR"),
    ]
    x, y = normal(48, 6), integers(2, 48, 1)
    stop = keras.callbacks.EarlyStopping(
        monitor="val_prc", patience=10, mode="max", restore_best_weights=True
    )
    fit = dict(
        x=x,
        y=y,
        batch_size=16,
        callbacks=[stop],
        validation_data=(x[:16], y[:16]),
        class_weight={0: 0.5, 1: 20.0},
    )
    return Run(model, fit, dict(loss=keras.losses.BinaryCrossentropy(), metrics=metrics))


def overfitting_run(repeated):
    model = keras.Sequential(
        [
            layers.Dense(
                8,
                activation="elu",
                kernel_regularizer=keras.regularizers.l2(0.0001),
                input_shape=(6,),
            ),
            layers.Dropout(0.5),
            layers.Dense(1),
        ]
    )
    data = tf.data.Dataset.from_tensor_slices((normal(32, 6), integers(2, 32).astype("float32")))
    train = data.shuffle(32)
    train = (train.repeat() if repeated else train).batch(8)

    def column(x, y):
        return x, tf.expand_dims(y, axis=-1)

    schedule = keras.optimizers.schedules.InverseTimeDecay(
        0.001, decay_steps=4000, decay_rate=1, staircase=False
    )
    metrics = [
        keras.metrics.BinaryCrossentropy(from_logits=True, name="binary_crossentropy"),
        "accuracy",
    ]
    stop = keras.callbacks.EarlyStopping(monitor="val_binary_crossentropy", patience=200)
    fit = dict(
        x=train.map(column),
        steps_per_epoch=4,
        validation_data=data.batch(8).map(column),
        callbacks=[stop],
    )
    losses = dict(loss=keras.losses.BinaryCrossentropy(from_logits=True), metrics=metrics)
    return Run(model, fit, losses, keras.optimizers.Adam(schedule))


@example(
    TENSORFLOW,
    "site/en/tutorials/keras/overfit_and_underfit.ipynb",
    "repeated `tf.data` with `steps_per_epoch`, inverse-time schedule, L2",
    statement=dict(batch_size=8, num_examples=32),
    cause="ends after one pass",
    reason="of repeated data nobody knows how often an example is in a pass",
    remedy="leave out `.repeat()`: `fit` begins a new pass by itself",
    remedied=lambda: overfitting_run(False),
)
def overfitting():
    return overfitting_run(True)


@example(
    HEATON,
    "t81_558_class_05_3_keras_l1_l2.ipynb",
    "L1 regularisation of activities",
)
def l1_of_activities():
    l1 = keras.regularizers.l1(1e-4)
    model = keras.Sequential()
    model.add(layers.Dense(10, input_dim=6, activation="relu", activity_regularizer=l1))
    model.add(layers.Dense(5, activation="relu", activity_regularizer=l1))
    model.add(layers.Dense(3, activation="softmax"))
    x, y = normal(32, 6), one_hot(3, 32)
    fit = dict(x=x, y=y, validation_data=(x, y))
    return Run(model, fit, dict(loss="categorical_crossentropy"))


class WideAndDeep(keras.Model):
    def __init__(self, units=30, activation="relu", **kwargs):
        super().__init__(**kwargs)
        self.norm_layer_wide = layers.Normalization()
        self.norm_layer_deep = layers.Normalization()
        self.hidden1 = layers.Dense(units, activation=activation)
        self.hidden2 = layers.Dense(units, activation=activation)
        self.main_output = layers.Dense(1)
        self.aux_output = layers.Dense(1)

    def call(self, inputs):
        wide, deep = inputs
        hidden = self.hidden2(self.hidden1(self.norm_layer_deep(deep)))
        both = layers.concatenate([self.norm_layer_wide(wide), hidden])
        return self.main_output(both), self.aux_output(hidden)


@example(
    GERON,
    "10_neural_nets_with_keras.ipynb",
    "wide & deep class, not built, adapted normalisations, two outputs, losses, weights, metrics",
)
def wide_and_deep():
    model = WideAndDeep(8, activation="relu", name="my_cool_model")
    wide, deep, y = normal(32, 3), normal(32, 4), normal(32, 1)[:, 0]
    model.norm_layer_wide.adapt(wide)
    model.norm_layer_deep.adapt(deep)
    fit = dict(
        x=(wide, deep),
        y=(y, y),
        validation_data=((wide[:8], deep[:8]), (y[:8], y[:8])),
    )
    losses = dict(
        loss=["mse", "mse"],
        loss_weights=[0.9, 0.1],
        metrics=["RootMeanSquaredError", "RootMeanSquaredError"],
    )
    return Run(model, fit, losses, keras.optimizers.Adam(learning_rate=1e-3))


def create_huber(threshold=1.0):
    def huber_fn(y_true, y_pred):
        error = y_true - y_pred
        squared = tf.square(error) / 2
        linear = threshold * tf.abs(error) - threshold**2 / 2
        return tf.where(tf.abs(error) < threshold, squared, linear)

    return huber_fn


class HuberMetric(keras.metrics.Metric):
    def __init__(self, threshold=1.0, **kwargs):
        super().__init__(**kwargs)
        self.threshold = threshold
        self.huber_fn = create_huber(threshold)
        self.total = self.add_weight(name="total", initializer="zeros")
        self.count = self.add_weight(name="count", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        values = self.huber_fn(y_true, y_pred)
        self.total.assign_add(tf.reduce_sum(values))
        self.count.assign_add(tf.cast(tf.size(y_true), tf.float32))

    def result(self):
        return self.total / self.count


class ReconstructingRegressor(keras.Model):
    def __init__(self, output_dim, **kwargs):
        super().__init__(**kwargs)
        self.hidden = [layers.Dense(8, activation="relu") for _ in range(2)]
        self.out = layers.Dense(output_dim)

    def build(self, batch_input_shape):
        self.reconstruct = layers.Dense(batch_input_shape[-1])

    def call(self, inputs, training=None):
        z = inputs
        for layer in self.hidden:
            z = layer(z)
        self.add_loss(0.05 * tf.reduce_mean(tf.square(self.reconstruct(z) - inputs)))
        return self.out(z)


@example(
    GERON,
    "12_custom_models_and_training_with_tensorflow.ipynb",
    "own Huber loss and streaming metric, LeCun start, Nadam",
)
def own_loss_and_metric():
    model = keras.Sequential(
        [
            layers.Dense(8, activation="selu", kernel_initializer="lecun_normal", input_shape=(6,)),
            layers.Dense(1),
        ]
    )
    x, y = normal(32, 6), normal(32, 1)
    fit = dict(x=x, y=y, validation_data=(x, y))
    losses = dict(loss=create_huber(2.0), metrics=[HuberMetric(2.0), "mae"])
    return Run(model, fit, losses, "nadam")


@example(
    GERON,
    "12_custom_models_and_training_with_tensorflow.ipynb",
    "reconstruction loss, a mean over the batch, by `add_loss`; a layer made in `build`",
)
def reconstruction():
    fit = dict(x=normal(32, 6), y=normal(32, 1))
    return Run(ReconstructingRegressor(1), fit, dict(loss="mse"), "nadam")


FEATURES = {"thal": ["fixed", "normal", "reversible"]}


def feature_space():
    space = keras.utils.FeatureSpace(
        features={
            "sex": keras.utils.FeatureSpace.integer_categorical(num_oov_indices=0),
            "thal": keras.utils.FeatureSpace.string_categorical(num_oov_indices=0),
            "age": keras.utils.FeatureSpace.float_discretized(num_bins=4),
            "chol": keras.utils.FeatureSpace.float_normalized(),
        },
        crosses=[keras.utils.FeatureSpace.cross(("sex", "age"), crossing_dim=8)],
        output_mode="concat",
    )
    table = {
        "sex": integers(2, 32, 1),
        "thal": np.array(FEATURES["thal"])[integers(3, 32, 1)],
        "age": images(32, 1) * 80,
        "chol": normal(32, 1),
    }
    data = tf.data.Dataset.from_tensor_slices((table, integers(2, 32)))
    data = data.shuffle(buffer_size=32).batch(8)
    space.adapt(data.map(lambda x, _: x))
    return space, data


@example(
    KERAS_IO,
    "examples/structured_data/structured_data_classification_with_feature_space.py",
    "`FeatureSpace` without out-of-vocabulary indices, in the pipeline",
    statement=dict(batch_size=8, num_examples=32),
)
def heart_disease():
    space, data = feature_space()
    data = data.map(lambda x, y: (space(x), y), num_parallel_calls=tf.data.AUTOTUNE).prefetch(2)
    encoded = space.get_encoded_features()
    x = layers.Dropout(0.5)(layers.Dense(8, activation="relu")(encoded))
    model = keras.Model(encoded, layers.Dense(1, activation="sigmoid")(x))
    fit = dict(x=data, validation_data=data, verbose=2)
    return Run(model, fit, dict(loss="binary_crossentropy", metrics=["accuracy"]))


@example(
    TENSORFLOW,
    "site/en/tutorials/structured_data/preprocessing_layers.ipynb",
    "strings and numbers of a dict, look-ups and category encoding inside the model",
    statement=dict(batch_size=8, num_examples=32),
)
def pets():
    kinds = ["cat", "dog"]
    table = {
        "Type": np.array(kinds)[integers(2, 32, 1)],
        "Age": integers(5, 32, 1),
        "Fee": normal(32, 1),
    }
    data = tf.data.Dataset.from_tensor_slices((table, integers(2, 32)))
    data = data.shuffle(buffer_size=32).batch(8).prefetch(8)
    kind = keras.Input(shape=(1,), name="Type", dtype="string")
    age = keras.Input(shape=(1,), name="Age", dtype="int64")
    fee = keras.Input(shape=(1,), name="Fee")
    lookup = layers.StringLookup(vocabulary=kinds)
    encoded = [
        layers.CategoryEncoding(num_tokens=lookup.vocabulary_size(), output_mode="multi_hot")(
            lookup(kind)
        ),
        layers.CategoryEncoding(num_tokens=7, output_mode="multi_hot")(
            layers.IntegerLookup(vocabulary=[0, 1, 2, 3, 4], max_tokens=7)(age)
        ),
        layers.Normalization(mean=0.1, variance=2.0)(fee),
    ]
    x = layers.Dense(8, activation="relu")(layers.concatenate(encoded))
    output = layers.Dense(1)(layers.Dropout(0.5)(x))
    losses = dict(
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
        metrics=["accuracy"],
        run_eagerly=True,
    )
    fit = dict(x=data, validation_data=data)
    return Run(keras.Model([kind, age, fee], output), fit, losses)


class NeuralDecisionTree(keras.Model):
    def __init__(self, depth, num_features, used_features_rate, num_classes):
        super().__init__()
        self.depth = depth
        self.num_leaves = 2**depth
        used = np.random.choice(num_features, int(num_features * used_features_rate), False)
        self.used_features_mask = ops.convert_to_tensor(np.eye(num_features)[used], dtype="float32")
        self.pi = self.add_weight(
            initializer="random_normal", shape=[self.num_leaves, num_classes], trainable=True
        )
        self.decision_fn = layers.Dense(units=self.num_leaves, activation="sigmoid")

    def call(self, features):
        batch_size = ops.shape(features)[0]
        features = ops.matmul(features, ops.transpose(self.used_features_mask))
        decisions = ops.expand_dims(self.decision_fn(features), axis=2)
        decisions = layers.concatenate([decisions, 1 - decisions], axis=2)
        mu = ops.ones([batch_size, 1, 1])
        begin, end = 1, 2
        for level in range(self.depth):
            mu = ops.tile(ops.reshape(mu, [batch_size, -1, 1]), (1, 1, 2))
            mu = mu * decisions[:, begin:end, :]
            begin, end = end, end + 2 ** (level + 1)
        mu = ops.reshape(mu, [batch_size, self.num_leaves])
        return ops.matmul(mu, keras.activations.softmax(self.pi))


class NeuralDecisionForest(keras.Model):
    def __init__(self, num_trees, depth, num_features, used_features_rate, num_classes):
        super().__init__()
        self.num_classes = num_classes
        self.ensemble = [
            NeuralDecisionTree(depth, num_features, used_features_rate, num_classes)
            for _ in range(num_trees)
        ]

    def call(self, inputs):
        outputs = ops.zeros([ops.shape(inputs)[0], self.num_classes])
        for tree in self.ensemble:
            outputs += tree(inputs)
        return outputs / len(self.ensemble)


def forest_run(normalization):
    numbers = keras.Input(shape=(), name="age", dtype="float32")
    category = keras.Input(shape=(), name="race", dtype="int32")
    encoded = layers.concatenate(
        [ops.expand_dims(numbers, -1), layers.Embedding(input_dim=5, output_dim=3)(category)]
    )
    features = normalization()(encoded)
    outputs = NeuralDecisionForest(2, 2, 4, 0.5, 2)(features)
    table = {"age": normal(32), "race": integers(5, 32)}
    data = tf.data.Dataset.from_tensor_slices((table, integers(2, 32))).batch(8).cache()
    losses = dict(
        loss=keras.losses.SparseCategoricalCrossentropy(),
        metrics=[keras.metrics.SparseCategoricalAccuracy()],
    )
    model = keras.Model({"age": numbers, "race": category}, outputs)
    return Run(model, dict(x=data), losses, keras.optimizers.Adam(learning_rate=0.01))


@example(
    KERAS_IO,
    "examples/structured_data/deep_neural_decision_forests.py",
    "forest of decision trees, models in a list with weights of their own",
    statement=dict(batch_size=8, num_examples=32),
    cause="BatchNormalization",
    reason="BatchNormalization mixes the examples of a batch",
    remedy="`GroupNormalization(1)` in the code: own models without `get_config` are not copied",
    remedied=lambda: forest_run(lambda: layers.GroupNormalization(1)),
)
def decision_forest():
    return forest_run(layers.BatchNormalization)


class RecommenderNet(keras.Model):
    def __init__(self, num_users, num_movies, embedding_size, **kwargs):
        super().__init__(**kwargs)
        table = dict(
            embeddings_initializer="he_normal",
            embeddings_regularizer=keras.regularizers.l2(1e-6),
        )
        self.user_embedding = layers.Embedding(num_users, embedding_size, **table)
        self.user_bias = layers.Embedding(num_users, 1)
        self.movie_embedding = layers.Embedding(num_movies, embedding_size, **table)
        self.movie_bias = layers.Embedding(num_movies, 1)

    def call(self, inputs):
        user, movie = inputs[:, 0], inputs[:, 1]
        dot = ops.tensordot(self.user_embedding(user), self.movie_embedding(movie), 2)
        return ops.nn.sigmoid(dot + self.user_bias(user) + self.movie_bias(movie))


class RecommenderOfRows(RecommenderNet):
    def call(self, inputs):
        user, movie = inputs[:, 0], inputs[:, 1]
        dot = ops.sum(
            self.user_embedding(user) * self.movie_embedding(movie), axis=1, keepdims=True
        )
        return ops.nn.sigmoid(dot + self.user_bias(user) + self.movie_bias(movie))


def recommender_run(kind):
    x, y = integers(20, 48, 2), images(48)
    fit = dict(x=x, y=y, batch_size=8, verbose=1, validation_data=(x[:8], y[:8]))
    losses = dict(loss=keras.losses.BinaryCrossentropy())
    return Run(kind(20, 20, 4), fit, losses, keras.optimizers.Adam(learning_rate=0.001))


@example(
    KERAS_IO,
    "examples/structured_data/collaborative_filtering_movielens.py",
    "users and films: `tensordot(users, films, 2)` sums over the batch",
    cause="each example by itself|mix",
    reason="the score of a pair is a sum over all pairs of the batch",
    remedy="`sum(users * films, axis=1, keepdims=True)`, which is what is meant",
    remedied=lambda: recommender_run(RecommenderOfRows),
)
def collaborative_filtering():
    return recommender_run(RecommenderNet)


class RetrievalModel(keras.Model):
    def __init__(self, num_users, num_candidates, dimension, **kwargs):
        super().__init__(**kwargs)
        self.user_embedding = layers.Embedding(num_users, dimension)
        self.candidate_embedding = layers.Embedding(num_candidates, dimension)
        self.loss_fn = keras.losses.MeanSquaredError()

    def build(self, input_shape):
        self.user_embedding.build(input_shape)
        self.candidate_embedding.build(input_shape)
        super().build(input_shape)

    def call(self, inputs, training=False):
        users = self.user_embedding(inputs)
        result = {"user_embeddings": users}
        if not training:
            scores = ops.matmul(users, ops.transpose(self.candidate_embedding.embeddings))
            result["predictions"] = ops.top_k(scores, 3)[1]
        return result

    def compute_loss(self, x, y, y_pred, sample_weight, training=True):
        candidates = self.candidate_embedding(y["movie_id"])
        labels = ops.expand_dims(y["rating"], -1)
        scores = ops.sum(ops.multiply(y_pred["user_embeddings"], candidates), 1, keepdims=True)
        return self.loss_fn(labels, scores, sample_weight)


@example(
    KERAS_IO,
    "examples/keras_rs/basic_retrieval.py",
    "two towers: `compute_loss` looks up the candidates, outputs differ in training",
    statement=dict(batch_size=8, num_examples=32),
)
def retrieval():
    labels = {"movie_id": integers(20, 32), "rating": images(32)}
    data = tf.data.Dataset.from_tensor_slices((integers(20, 32), labels)).batch(8).cache()
    fit = dict(x=data, validation_data=data, validation_freq=5)
    return Run(RetrievalModel(20, 20, 4), fit, {}, keras.optimizers.Adagrad(learning_rate=0.1))


@example(
    "kingofyb/Protecting-Privacy-in-AI-Systems",
    "test2.py",
    "of a user of TensorFlow Privacy; its optimizer is replaced, `num_microbatches` left out",
)
def tensorflow_privacy_user():
    model = keras.Sequential(
        [
            layers.Flatten(input_shape=(8, 8)),
            layers.Dense(16, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ]
    )
    fit = dict(x=images(50, 8, 8).astype("float64"), y=integers(10, 50), batch_size=25)
    losses = dict(loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return Run(model, fit, losses, keras.optimizers.SGD(learning_rate=0.15))


EXAMPLES = [
    imbalanced,
    overfitting,
    l1_of_activities,
    wide_and_deep,
    own_loss_and_metric,
    reconstruction,
    heart_disease,
    pets,
    decision_forest,
    collaborative_filtering,
    retrieval,
    tensorflow_privacy_user,
]
