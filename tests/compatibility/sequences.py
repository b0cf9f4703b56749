"""Time series, sound and music: windows, recurrent and convolutional layers, CTC."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from tests.compatibility.case import Run, example, images, integers, normal
from tests.compatibility.tabular import GERON, TENSORFLOW
from tests.compatibility.vision import KERAS_IO, NO_BATCH_NORMALIZATION, replaced

MORONEY = "lmoroney/tfbook"


@example(
    KERAS_IO,
    "examples/timeseries/timeseries_weather_forecasting.py",
    "LSTM on `timeseries_dataset_from_array`, checkpoint and early stopping",
    statement=dict(batch_size=8, num_examples=24),
)
def weather():
    series = normal(37, 4)
    data = keras.utils.timeseries_dataset_from_array(
        series, series[10:34, :1], sequence_length=12, sampling_rate=1, batch_size=8
    )
    inputs = keras.layers.Input(shape=(12, 4))
    outputs = layers.Dense(1)(layers.LSTM(8)(inputs))
    callbacks = [
        keras.callbacks.EarlyStopping(monitor="val_loss", min_delta=0, patience=5),
        keras.callbacks.ModelCheckpoint(
            monitor="val_loss",
            filepath="model_checkpoint.weights.h5",
            verbose=0,
            save_weights_only=True,
            save_best_only=True,
        ),
    ]
    fit = dict(x=data, validation_data=data, callbacks=callbacks)
    optimizer = keras.optimizers.Adam(learning_rate=0.001)
    return Run(keras.Model(inputs, outputs), fit, dict(loss="mse"), optimizer)


@example(
    MORONEY,
    "chapter11/gru_timeseries-withdropout.ipynb",
    "windows of `tf.data`, GRUs with recurrent dropout, momentum, Huber loss",
    statement=dict(batch_size=8, num_examples=30, steps_per_epoch=4),
)
def sunspots():
    def windowed(series, size):
        data = tf.data.Dataset.from_tensor_slices(tf.expand_dims(series, axis=-1))
        data = data.window(size + 1, shift=1, drop_remainder=True)
        data = data.flat_map(lambda window: window.batch(size + 1))
        data = data.shuffle(20).map(lambda window: (window[:-1], window[-1]))
        return data.batch(8).prefetch(1)

    model = keras.models.Sequential(
        [
            layers.GRU(
                6, input_shape=[None, 1], return_sequences=True, dropout=0.1, recurrent_dropout=0.1
            ),
            layers.GRU(6, dropout=0.1, recurrent_dropout=0.1),
            layers.Dense(1),
        ]
    )
    fit = dict(x=windowed(normal(38), 8), validation_data=windowed(normal(20), 8))
    optimizer = keras.optimizers.SGD(learning_rate=1e-4, momentum=0.7)
    return Run(model, fit, dict(loss=keras.losses.Huber(), metrics=["mae"]), optimizer)


class FeedBack(keras.Model):
    def __init__(self, units, out_steps, num_features):
        super().__init__()
        self.out_steps = out_steps
        self.units = units
        self.lstm_cell = layers.LSTMCell(units)
        self.lstm_rnn = layers.RNN(self.lstm_cell, return_state=True)
        self.dense = layers.Dense(num_features)

    def warmup(self, inputs):
        x, *state = self.lstm_rnn(inputs)
        return self.dense(x), state

    def call(self, inputs, training=None):
        prediction, state = self.warmup(inputs)
        predictions = [prediction]
        for _ in range(1, self.out_steps):
            x, state = self.lstm_cell(prediction, states=state, training=training)
            prediction = self.dense(x)
            predictions.append(prediction)
        return tf.transpose(tf.stack(predictions), [1, 0, 2])


@example(
    TENSORFLOW,
    "site/en/tutorials/structured_data/time_series.ipynb",
    "autoregressive LSTM: the cell is called by itself and inside of an RNN",
    statement=dict(batch_size=8, num_examples=24),
)
def feedback():
    data = tf.data.Dataset.from_tensor_slices((normal(24, 6, 3), normal(24, 4, 3))).batch(8)
    stop = keras.callbacks.EarlyStopping(monitor="val_loss", patience=2, mode="min")
    fit = dict(x=data, validation_data=data, callbacks=[stop])
    losses = dict(loss=keras.losses.MeanSquaredError(), metrics=[keras.metrics.MeanAbsoluteError()])
    return Run(FeedBack(4, 4, 3), fit, losses, keras.optimizers.Adam())


def mse_with_positive_pressure(y_true, y_pred):
    mse = (y_true - y_pred) ** 2
    return tf.reduce_mean(mse + 10 * tf.maximum(-y_pred, 0.0))


@example(
    TENSORFLOW,
    "site/en/tutorials/audio/music_generation.ipynb",
    "notes: dict of outputs, losses and weights, an own loss that takes a mean",
    statement=dict(batch_size=8, num_examples=24),
)
def music():
    inputs = keras.Input((6, 3))
    x = layers.LSTM(8)(inputs)
    outputs = {
        "pitch": layers.Dense(16, name="pitch")(x),
        "step": layers.Dense(1, name="step")(x),
        "duration": layers.Dense(1, name="duration")(x),
    }
    loss = {
        "pitch": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        "step": mse_with_positive_pressure,
        "duration": mse_with_positive_pressure,
    }
    labels = {"pitch": integers(16, 24), "step": images(24), "duration": images(24)}
    data = tf.data.Dataset.from_tensor_slices((normal(24, 6, 3), labels))
    data = data.shuffle(24).batch(8, drop_remainder=True).cache().prefetch(tf.data.AUTOTUNE)
    callbacks = [
        keras.callbacks.ModelCheckpoint(filepath="ckpt_{epoch}.weights.h5", save_weights_only=True),
        keras.callbacks.EarlyStopping(monitor="loss", patience=5, restore_best_weights=True),
    ]
    losses = dict(loss=loss, loss_weights={"pitch": 0.05, "step": 1.0, "duration": 1.0})
    fit = dict(x=data, callbacks=callbacks)
    return Run(keras.Model(inputs, outputs), fit, losses, keras.optimizers.Adam(0.005))


@example(
    KERAS_IO,
    "examples/timeseries/timeseries_classification_transformer.py",
    "transformer on series, `validation_split`, best weights restored",
)
def series_transformer():
    inputs = keras.Input(shape=(12, 1))
    x = layers.MultiHeadAttention(key_dim=4, num_heads=2, dropout=0.25)(inputs, inputs)
    x = layers.LayerNormalization(epsilon=1e-6)(layers.Dropout(0.25)(x))
    residual = x + inputs
    x = layers.Conv1D(filters=4, kernel_size=1, activation="relu")(residual)
    x = layers.Conv1D(filters=1, kernel_size=1)(layers.Dropout(0.25)(x))
    x = layers.LayerNormalization(epsilon=1e-6)(x) + residual
    x = layers.GlobalAveragePooling1D(data_format="channels_last")(x)
    x = layers.Dropout(0.4)(layers.Dense(8, activation="relu")(x))
    model = keras.Model(inputs, layers.Dense(2, activation="softmax")(x))
    stop = keras.callbacks.EarlyStopping(patience=10, restore_best_weights=True)
    fit = dict(
        x=normal(40, 12, 1),
        y=integers(2, 40),
        validation_split=0.2,
        batch_size=16,
        callbacks=[stop],
    )
    losses = dict(loss="sparse_categorical_crossentropy", metrics=["sparse_categorical_accuracy"])
    return Run(model, fit, losses, keras.optimizers.Adam(learning_rate=1e-4))


@example(
    KERAS_IO,
    "examples/timeseries/timeseries_anomaly_detection.py",
    "convolutional autoencoder of windows",
)
def anomalies():
    conv = dict(padding="same", strides=2, activation="relu")
    model = keras.Sequential(
        [
            layers.Input(shape=(16, 1)),
            layers.Conv1D(filters=4, kernel_size=7, **conv),
            layers.Dropout(rate=0.2),
            layers.Conv1D(filters=2, kernel_size=7, **conv),
            layers.Conv1DTranspose(filters=2, kernel_size=7, **conv),
            layers.Dropout(rate=0.2),
            layers.Conv1DTranspose(filters=4, kernel_size=7, **conv),
            layers.Conv1DTranspose(filters=1, kernel_size=7, padding="same"),
        ]
    )
    x = normal(40, 16, 1)
    stop = keras.callbacks.EarlyStopping(monitor="val_loss", patience=5, mode="min")
    fit = dict(x=x, y=x, batch_size=16, validation_split=0.1, callbacks=[stop])
    return Run(model, fit, dict(loss="mse"), keras.optimizers.Adam(learning_rate=0.001))


class GraphConv(layers.Layer):
    def __init__(self, in_feat, out_feat, edges, num_nodes):
        super().__init__()
        self.edges, self.num_nodes = edges, num_nodes
        self.weight = self.add_weight(
            initializer=keras.initializers.GlorotUniform(),
            shape=(in_feat, out_feat),
            trainable=True,
        )

    def call(self, features):
        own = tf.matmul(features, self.weight)
        neighbours = tf.gather(features, self.edges[1])
        mean = tf.math.unsorted_segment_mean(neighbours, self.edges[0], num_segments=self.num_nodes)
        return tf.concat([own, tf.matmul(mean, self.weight)], axis=-1)


class LSTMGC(layers.Layer):
    conv = GraphConv

    def __init__(self, in_feat, out_feat, lstm_units, output_seq_len, edges, num_nodes):
        super().__init__()
        self.graph_conv = self.conv(in_feat, out_feat, edges, num_nodes)
        self.lstm = layers.LSTM(lstm_units, activation="relu")
        self.dense = layers.Dense(output_seq_len)
        self.output_seq_len = output_seq_len

    def call(self, inputs):
        features = self.graph_conv(tf.transpose(inputs, [2, 0, 1, 3]))
        shape = tf.shape(features)
        joined = tf.reshape(features, (shape[0] * shape[1], shape[2], features.shape[3]))
        dense = self.dense(self.lstm(joined))
        output = tf.reshape(dense, (shape[0], shape[1], self.output_seq_len))
        return tf.transpose(output, [1, 2, 0])


class GraphConvOfExamples(GraphConv):
    """Of `(batch, nodes, time, features)`: the mean of the neighbours is a constant matrix."""

    def call(self, features):
        shares = np.zeros((self.num_nodes, self.num_nodes), "float32")
        np.add.at(shares, self.edges, 1.0)
        shares /= np.maximum(shares.sum(1, keepdims=True), 1.0)
        mean = tf.einsum("nm,bmtf->bntf", shares, features)
        both = [tf.matmul(features, self.weight), tf.matmul(mean, self.weight)]
        return tf.concat(both, axis=-1)


class LSTMGCOfExamples(LSTMGC):
    """Examples come first in every tensor that a layer with weights sees."""

    conv = GraphConvOfExamples

    def call(self, inputs):
        features = self.graph_conv(tf.transpose(inputs, [0, 2, 1, 3]))
        nodes = [self.dense(self.lstm(node)) for node in tf.unstack(features, axis=1)]
        return tf.stack(nodes, axis=2)


def traffic_run(kind):
    edges = ([0, 0, 1, 2], [1, 2, 0, 0])
    inputs = layers.Input((6, 3, 1))
    outputs = kind(1, 2, 4, 2, edges, 3)(inputs)
    data = tf.data.Dataset.from_tensor_slices((normal(24, 6, 3, 1), normal(24, 2, 3))).batch(8)
    data = data.shuffle(100).prefetch(16).cache()
    stop = keras.callbacks.EarlyStopping(patience=10)
    fit = dict(x=data, validation_data=data, callbacks=[stop])
    losses = dict(loss=keras.losses.MeanSquaredError())
    optimizer = keras.optimizers.RMSprop(learning_rate=0.0002)
    return Run(keras.models.Model(inputs, outputs), fit, losses, optimizer)


@example(
    KERAS_IO,
    "examples/timeseries/timeseries_traffic_forecasting.py",
    "graph convolution with roads in the first axis, examples in the second, then LSTM",
    statement=dict(batch_size=8, num_examples=24),
    cause="first axis|each example",
    reason="the LSTM gets roads and examples joined in one axis",
    remedy="keep the examples in the first axis",
    remedied=lambda: traffic_run(LSTMGCOfExamples),
)
def traffic():
    return traffic_run(LSTMGC)


def ctc_loss(y_true, y_pred):
    batch = tf.cast(tf.shape(y_true)[0], dtype="int64")
    frames = tf.cast(tf.shape(y_pred)[1], dtype="int64") * tf.ones((batch, 1), dtype="int64")
    letters = tf.cast(tf.shape(y_true)[1], dtype="int64") * tf.ones((batch, 1), dtype="int64")
    return tf.keras.backend.ctc_batch_cost(y_true, y_pred, frames, letters)


def speech_run():
    inputs = layers.Input((16, 4), name="spectrogram")
    x = layers.Conv1D(4, 5, activation="relu", kernel_initializer="he_normal", padding="same")(
        inputs
    )
    x = layers.BatchNormalization()(x)
    x = layers.Bidirectional(layers.LSTM(4, return_sequences=True, dropout=0.25))(x)
    x = layers.BatchNormalization()(x)
    x = layers.Permute((2, 1))(x)
    x = layers.Dropout(0.2)(layers.Dense(12, activation="relu")(x))
    x = layers.Permute((2, 1))(layers.BatchNormalization()(x))
    model = keras.Model(inputs, layers.Dense(6, activation="softmax")(x))
    data = tf.data.Dataset.from_tensor_slices((normal(16, 16, 4), integers(5, 16, 4))).batch(8)
    fit = dict(x=data, validation_data=data)
    return Run(model, fit, dict(loss=ctc_loss), keras.optimizers.Adam(learning_rate=1e-4))


@example(
    KERAS_IO,
    "examples/audio/ctc_asr.py",
    "speech: CTC as a loss function, bidirectional LSTMs with dropout",
    statement=dict(batch_size=8, num_examples=16),
    remedied=replaced(speech_run),
    **NO_BATCH_NORMALIZATION,
)
def speech():
    return speech_run()


class CTCLayer(layers.Layer):
    def call(self, y_true, y_pred):
        self.add_loss(ctc_loss(y_true, y_pred))
        return y_pred


@example(
    KERAS_IO,
    "examples/vision/captcha_ocr.py",
    "captchas: CTC in an endpoint layer, labels among the inputs, no compiled loss",
    statement=dict(batch_size=8, num_examples=16),
)
def captcha():
    image = layers.Input(shape=(16, 8, 1), name="image", dtype="float32")
    labels = layers.Input(name="label", shape=(None,), dtype="float32")
    conv = dict(activation="relu", kernel_initializer="he_normal", padding="same")
    x = layers.MaxPooling2D((2, 2))(layers.Conv2D(4, (3, 3), **conv)(image))
    x = layers.Reshape(target_shape=(8, 16))(x)
    x = layers.Dropout(0.2)(layers.Dense(8, activation="relu")(x))
    x = layers.Bidirectional(layers.LSTM(4, return_sequences=True, dropout=0.25))(x)
    x = layers.Dense(7, activation="softmax")(x)
    model = keras.Model([image, labels], CTCLayer(name="ctc_loss")(labels, x))
    table = {"image": images(16, 16, 8, 1), "label": integers(5, 16, 3)}
    data = tf.data.Dataset.from_tensor_slices(table).batch(8).prefetch(2)
    stop = keras.callbacks.EarlyStopping(monitor="val_loss", patience=10, restore_best_weights=True)
    return Run(model, dict(x=data, validation_data=data, callbacks=[stop]), {})


class LNSimpleRNNCell(layers.Layer):
    def __init__(self, units, activation="tanh", **kwargs):
        super().__init__(**kwargs)
        self.state_size = units
        self.output_size = units
        self.simple_rnn_cell = layers.SimpleRNNCell(units, activation=None)
        self.layer_norm = layers.LayerNormalization()
        self.activation = keras.activations.get(activation)

    def call(self, inputs, states):
        outputs, _ = self.simple_rnn_cell(inputs, states)
        normalized = self.activation(self.layer_norm(outputs))
        return normalized, [normalized]


@example(
    GERON,
    "15_processing_sequences_using_rnns_and_cnns.ipynb",
    "a recurrent cell of the author's, with layer normalisation",
)
def normalized_cell():
    model = keras.Sequential(
        [
            layers.RNN(LNSimpleRNNCell(4), return_sequences=True, input_shape=[None, 3]),
            layers.Dense(2),
        ]
    )
    fit = dict(x=normal(24, 5, 3), y=normal(24, 5, 2), batch_size=8)
    optimizer = keras.optimizers.SGD(learning_rate=0.1, momentum=0.9)
    return Run(model, fit, dict(loss="huber", metrics=["mae"]), optimizer)


EXAMPLES = [
    weather,
    sunspots,
    feedback,
    music,
    series_transformer,
    anomalies,
    traffic,
    speech,
    captcha,
    normalized_cell,
]
