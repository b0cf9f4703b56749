"""Images: convolutions, transformers, super-resolution, boxes, distillation."""

import math

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

import tf_lowrank_dp as tfdp
from tests.compatibility.case import Run, example, images, integers, one_hot

KERAS_IO = "keras-team/keras-io"


def replaced(build):
    """Follows the advice for BatchNormalization."""

    def remedied():
        run = build()
        run.model = tfdp.replace_batch_normalization(run.model)
        return run

    return remedied


NO_BATCH_NORMALIZATION = {
    "cause": "BatchNormalization",
    "reason": "BatchNormalization mixes the examples of a batch",
    "remedy": "`tfdp.replace_batch_normalization`",
}


@example(KERAS_IO, "examples/vision/mnist_convnet.py", "CNN, one-hot labels, `validation_split`")
def mnist_convnet():
    model = keras.Sequential(
        [
            keras.Input((12, 12, 1)),
            layers.Conv2D(8, kernel_size=(3, 3), activation="relu"),
            layers.MaxPooling2D(pool_size=(2, 2)),
            layers.Conv2D(8, kernel_size=(3, 3), activation="relu"),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(10, activation="softmax"),
        ]
    )
    fit = dict(x=images(40, 12, 12, 1), y=one_hot(10, 40), batch_size=16, validation_split=0.1)
    return Run(model, fit, dict(loss="categorical_crossentropy", metrics=["accuracy"]))


@example(
    "PLSE-Lab/Python-MLAPI-expl",
    "python_sources/basic-keras-90.py",
    "Kaggle's digits: `ImageDataGenerator.flow`, RMSprop, ReduceLROnPlateau",
    statement=dict(batch_size=8, num_examples=32),
)
def kaggle_digits():
    model = keras.Sequential()
    model.add(layers.Conv2D(8, (5, 5), padding="Same", activation="relu", input_shape=(12, 12, 1)))
    model.add(layers.MaxPool2D(pool_size=(2, 2)))
    model.add(layers.Dropout(0.25))
    model.add(layers.Conv2D(8, (3, 3), padding="Same", activation="relu"))
    model.add(layers.MaxPool2D(pool_size=(2, 2), strides=(2, 2)))
    model.add(layers.Flatten())
    model.add(layers.Dense(16, activation="relu"))
    model.add(layers.Dropout(0.5))
    model.add(layers.Dense(10, activation="softmax"))
    augment = tf.keras.preprocessing.image.ImageDataGenerator(
        width_shift_range=0.1, height_shift_range=0.1
    )
    x, y = images(32, 12, 12, 1), one_hot(10, 32)
    augment.fit(x)
    slower = keras.callbacks.ReduceLROnPlateau(
        monitor="val_accuracy", patience=3, factor=0.5, min_lr=0.00001
    )
    fit = dict(
        x=augment.flow(x, y, batch_size=8),
        validation_data=(x[:8], y[:8]),
        steps_per_epoch=len(x) // 8,
        callbacks=[slower],
    )
    optimizer = keras.optimizers.RMSprop(learning_rate=0.001, rho=0.9, epsilon=1e-08)
    return Run(model, fit, dict(loss="categorical_crossentropy", metrics=["accuracy"]), optimizer)


class Patches(layers.Layer):
    def __init__(self, patch_size):
        super().__init__()
        self.patch_size = patch_size

    def call(self, images):
        batch, height, width, channels = ops.shape(images)
        patches = ops.image.extract_patches(images, size=self.patch_size)
        count = (height // self.patch_size) * (width // self.patch_size)
        return ops.reshape(patches, (batch, count, self.patch_size**2 * channels))


class PatchEncoder(layers.Layer):
    def __init__(self, num_patches, projection_dim):
        super().__init__()
        self.num_patches = num_patches
        self.projection = layers.Dense(units=projection_dim)
        self.position_embedding = layers.Embedding(num_patches, projection_dim)

    def call(self, patch):
        positions = ops.expand_dims(ops.arange(0, self.num_patches, 1), axis=0)
        return self.projection(patch) + self.position_embedding(positions)


def mlp(x, hidden_units, dropout_rate):
    for units in hidden_units:
        x = layers.Dense(units, activation=keras.activations.gelu)(x)
        x = layers.Dropout(dropout_rate)(x)
    return x


def encoder_block(x, dim, rate=0.1):
    x1 = layers.LayerNormalization(epsilon=1e-6)(x)
    attended = layers.MultiHeadAttention(num_heads=2, key_dim=dim, dropout=rate)(x1, x1)
    x2 = layers.Add()([attended, x])
    x3 = mlp(layers.LayerNormalization(epsilon=1e-6)(x2), [dim * 2, dim], rate)
    return layers.Add()([x3, x2])


@example(
    KERAS_IO,
    "examples/vision/image_classification_with_vision_transformer.py",
    "ViT with augmentation layers inside, AdamW, top-5 accuracy, ModelCheckpoint of weights",
)
def vision_transformer():
    x, y = images(40, 12, 12, 3), integers(10, 40, 1)
    augmentation = keras.Sequential(
        [
            layers.Normalization(mean=0.5, variance=0.1),
            layers.Resizing(12, 12),
            layers.RandomFlip("horizontal"),
            layers.RandomRotation(factor=0.02),
            layers.RandomZoom(height_factor=0.2, width_factor=0.2),
        ]
    )
    inputs = keras.Input(shape=(12, 12, 3))
    encoded = PatchEncoder(9, 8)(Patches(4)(augmentation(inputs)))
    encoded = encoder_block(encoded, 8)
    representation = layers.Flatten()(layers.LayerNormalization(epsilon=1e-6)(encoded))
    representation = layers.Dropout(0.5)(representation)
    features = mlp(representation, hidden_units=[16, 8], dropout_rate=0.5)
    model = keras.Model(inputs=inputs, outputs=layers.Dense(10)(features))
    checkpoint = keras.callbacks.ModelCheckpoint(
        "checkpoint.weights.h5",
        monitor="val_accuracy",
        save_best_only=True,
        save_weights_only=True,
    )
    fit = dict(x=x, y=y, batch_size=16, validation_split=0.1, callbacks=[checkpoint])
    losses = dict(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[
            keras.metrics.SparseCategoricalAccuracy(name="accuracy"),
            keras.metrics.SparseTopKCategoricalAccuracy(5, name="top-5-accuracy"),
        ],
    )
    return Run(model, fit, losses, keras.optimizers.AdamW(0.001, weight_decay=0.0001))


class StochasticDepth(layers.Layer):
    def __init__(self, drop_prop, **kwargs):
        super().__init__(**kwargs)
        self.drop_prob = drop_prop

    def call(self, x, training=None):
        if not training:
            return x
        keep = 1 - self.drop_prob
        shape = (tf.shape(x)[0],) + (1,) * (len(x.shape) - 1)
        return (x / keep) * tf.floor(keep + tf.random.uniform(shape, 0, 1))


class CCTTokenizer(layers.Layer):
    def __init__(self, channels, **kwargs):
        super().__init__(**kwargs)
        self.conv_model = keras.Sequential()
        for filters in channels:
            self.conv_model.add(
                layers.Conv2D(
                    filters,
                    3,
                    1,
                    padding="valid",
                    use_bias=False,
                    activation="relu",
                    kernel_initializer="he_normal",
                )
            )
            self.conv_model.add(layers.ZeroPadding2D(1))
            self.conv_model.add(layers.MaxPooling2D(3, 2, "same"))

    def call(self, images):
        outputs = self.conv_model(images)
        shape = tf.shape(outputs)
        return tf.reshape(outputs, (-1, shape[1] * shape[2], outputs.shape[-1]))


class SequencePooling(layers.Layer):
    def __init__(self):
        super().__init__()
        self.attention = layers.Dense(1)

    def call(self, x):
        weights = ops.transpose(ops.softmax(self.attention(x), axis=1), axes=(0, 2, 1))
        return ops.squeeze(ops.matmul(weights, x), axis=-2)


@example(
    KERAS_IO,
    "examples/vision/cct.py",
    "compact convolutional transformer: stochastic depth, sequence pooling, label smoothing",
)
def compact_transformer():
    inputs = layers.Input((12, 12, 3))
    augmentation = keras.Sequential(
        [
            layers.Rescaling(scale=1.0 / 255),
            layers.RandomCrop(12, 12),
            layers.RandomFlip("horizontal"),
        ]
    )
    encoded = CCTTokenizer([4, 8])(augmentation(inputs))
    positions = layers.Embedding(input_dim=9, output_dim=8)(ops.arange(0, 9, 1))
    encoded = encoded + positions
    x1 = layers.LayerNormalization(epsilon=1e-5)(encoded)
    attended = layers.MultiHeadAttention(num_heads=2, key_dim=8, dropout=0.1)(x1, x1)
    x2 = layers.Add()([StochasticDepth(0.1)(attended), encoded])
    x3 = mlp(layers.LayerNormalization(epsilon=1e-5)(x2), [8, 8], 0.1)
    encoded = layers.Add()([StochasticDepth(0.1)(x3), x2])
    representation = layers.LayerNormalization(epsilon=1e-5)(encoded)
    model = keras.Model(inputs, layers.Dense(10)(SequencePooling()(representation)))
    losses = dict(
        loss=keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1),
        metrics=[
            keras.metrics.CategoricalAccuracy(name="accuracy"),
            keras.metrics.TopKCategoricalAccuracy(5, name="top-5-accuracy"),
        ],
    )
    fit = dict(x=images(40, 12, 12, 3), y=one_hot(10, 40), batch_size=16, validation_split=0.1)
    return Run(model, fit, losses, keras.optimizers.AdamW(0.001, weight_decay=0.0001))


@example(
    KERAS_IO,
    "examples/vision/object_detection_using_vision_transformer.py",
    "ViT that predicts boxes: mean squared error, checkpoint and early stopping",
)
def box_regression():
    inputs = keras.Input(shape=(12, 12, 3))
    encoded = PatchEncoder(9, 8)(Patches(4)(inputs))
    encoded = encoder_block(encoded, 8)
    representation = layers.Flatten()(layers.LayerNormalization(epsilon=1e-6)(encoded))
    features = mlp(layers.Dropout(0.3)(representation), [16, 8], 0.3)
    model = keras.Model(inputs=inputs, outputs=layers.Dense(4)(features))
    callbacks = [
        keras.callbacks.ModelCheckpoint(
            "vit.weights.h5", monitor="val_loss", save_best_only=True, save_weights_only=True
        ),
        keras.callbacks.EarlyStopping(monitor="val_loss", patience=10),
    ]
    fit = dict(
        x=images(40, 12, 12, 3),
        y=images(40, 4),
        batch_size=16,
        validation_split=0.1,
        callbacks=callbacks,
    )
    optimizer = keras.optimizers.AdamW(learning_rate=0.001, weight_decay=0.0001)
    return Run(model, fit, dict(loss=keras.losses.MeanSquaredError()), optimizer)


def unpack(box):
    return box[..., 0], box[..., 1], box[..., 2], box[..., 3]


def intersection_over_union(box1, box2):
    x1, y1, w1, h1 = unpack(box1)
    x2, y2, w2, h2 = unpack(box2)
    left = ops.maximum(x1 - w1 / 2, x2 - w2 / 2)
    bottom = ops.maximum(y1 - h1 / 2, y2 - h2 / 2)
    right = ops.minimum(x1 + w1 / 2, x2 + w2 / 2)
    top = ops.minimum(y1 + h1 / 2, y2 + h2 / 2)
    common = ops.maximum(0.0, right - left) * ops.maximum(0.0, top - bottom)
    both = ops.maximum(w1, 0.0) * ops.maximum(h1, 0.0) + w2 * h2 - common
    return ops.nan_to_num(common / both)


def signed_sqrt(x):
    return ops.sign(x) * ops.sqrt(ops.absolute(x) + keras.config.epsilon())


def box_loss(true, pred):
    xy_true, wh_true, conf_true = true[..., :2], true[..., 2:4], true[..., 4:]
    xy_pred, wh_pred, conf_pred = pred[..., :2], pred[..., 2:4], pred[..., 4:]
    no_object = conf_true == 0.0
    error = ops.square(xy_true - xy_pred) + ops.square(signed_sqrt(wh_true) - signed_sqrt(wh_pred))
    error = ops.where(no_object, 0.0, error)
    overlap = ops.expand_dims(intersection_over_union(true, pred), -1)
    target = ops.where(no_object, 0.0, overlap)
    confidence = ops.square(target - conf_pred)
    confidence = ops.where(no_object, confidence * 0.5, confidence)
    return ops.concatenate([5.0 * error, confidence], -1)


@example(
    "fchollet/deep-learning-with-python-notebooks",
    "chapter12_object-detection.ipynb",
    "YOLO: dict of outputs, own loss of boxes without a mean, losses by name",
    statement=dict(batch_size=8, num_examples=24),
)
def yolo():
    inputs = keras.Input(shape=(24, 24, 3))
    x = layers.Conv2D(8, 3, strides=2, activation="relu")(inputs)
    x = layers.Conv2D(8, (3, 3), strides=(2, 2))(x)
    x = layers.Flatten()(x)
    x = layers.Dense(32, activation="relu", kernel_initializer="glorot_normal")(x)
    x = layers.Dropout(0.5)(x)
    x = layers.Reshape((3, 3, 9))(layers.Dense(3 * 3 * 9)(x))
    outputs = {"box": x[..., :5], "class": layers.Activation("softmax")(x[..., 5:])}
    boxes = images(24, 3, 3, 5)
    boxes[..., 4] = boxes[..., 4] > 0.7
    labels = {"box": boxes, "class": integers(4, 24, 3, 3).astype("float64")}
    data = tf.data.Dataset.zip(
        tf.data.Dataset.from_tensor_slices(images(24, 24, 24, 3)),
        tf.data.Dataset.from_tensor_slices(labels),
    )
    data = data.batch(8).prefetch(2)
    losses = dict(loss={"box": box_loss, "class": "sparse_categorical_crossentropy"})
    fit = dict(x=data, validation_data=data.take(1))
    return Run(keras.Model(inputs, outputs), fit, losses, keras.optimizers.Adam(2e-4))


class DepthToSpace(layers.Layer):
    def __init__(self, block_size):
        super().__init__()
        self.block_size = block_size

    def call(self, inputs):
        return tf.nn.depth_to_space(inputs, self.block_size)


class SignalToNoise(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.ratios = []

    def on_epoch_end(self, epoch, logs=None):
        self.mean = np.mean(self.ratios)

    def on_test_batch_end(self, batch, logs=None):
        self.ratios.append(10 * math.log10(1 / logs["loss"]))


@example(
    KERAS_IO,
    "examples/vision/super_resolution_sub_pixel.py",
    "sub-pixel convolutions, a callback of the author's on test batches, checkpoint of the loss",
    statement=dict(batch_size=4, num_examples=16),
)
def super_resolution():
    settings = dict(activation="relu", kernel_initializer="orthogonal", padding="same")
    inputs = keras.Input(shape=(None, None, 1))
    x = layers.Conv2D(8, 5, **settings)(inputs)
    x = layers.Conv2D(8, 3, **settings)(x)
    x = layers.Conv2D(9, 3, **settings)(x)
    model = keras.Model(inputs, DepthToSpace(3)(x))

    def scaled(image):
        return image / 255.0

    def pair(image):
        return tf.image.resize(image, [8, 8], method="area"), image

    data = tf.data.Dataset.from_tensor_slices(images(16, 24, 24, 1) * 255.0).batch(4)
    data = data.map(scaled).map(pair)
    callbacks = [
        SignalToNoise(),
        keras.callbacks.EarlyStopping(monitor="loss", patience=10),
        keras.callbacks.ModelCheckpoint(
            "checkpoint.weights.h5",
            save_weights_only=True,
            monitor="loss",
            mode="min",
            save_best_only=True,
        ),
    ]
    fit = dict(x=data, callbacks=callbacks, validation_data=data)
    return Run(model, fit, dict(loss=keras.losses.MeanSquaredError()), keras.optimizers.Adam(0.001))


def convmixer_run():
    inputs = keras.Input((12, 12, 3))
    x = layers.Rescaling(scale=1.0 / 255)(inputs)

    def activated(x):
        return layers.BatchNormalization()(layers.Activation("gelu")(x))

    x = activated(layers.Conv2D(8, kernel_size=2, strides=2)(x))
    skip = x
    x = activated(layers.Conv2D(8, kernel_size=5, groups=8, padding="same")(x))
    x = activated(layers.Conv2D(8, kernel_size=1)(layers.Add()([x, skip])))
    outputs = layers.Dense(10, activation="softmax")(layers.GlobalAvgPool2D()(x))
    data = tf.data.Dataset.from_tensor_slices((images(32, 12, 12, 3) * 255, integers(10, 32)))
    flip = keras.Sequential([layers.RandomCrop(12, 12), layers.RandomFlip("horizontal")])
    train = data.shuffle(80).batch(8)
    train = train.map(lambda x, y: (flip(x), y), num_parallel_calls=tf.data.AUTOTUNE).prefetch(2)
    checkpoint = keras.callbacks.ModelCheckpoint(
        "checkpoint.weights.h5",
        monitor="val_accuracy",
        save_best_only=True,
        save_weights_only=True,
    )
    fit = dict(x=train, validation_data=data.batch(8), callbacks=[checkpoint])
    losses = dict(loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    optimizer = keras.optimizers.AdamW(learning_rate=0.001, weight_decay=0.0001)
    return Run(keras.Model(inputs, outputs), fit, losses, optimizer)


@example(
    KERAS_IO,
    "examples/vision/convmixer.py",
    "ConvMixer on augmented `tf.data`",
    statement=dict(batch_size=8, num_examples=32),
    remedied=replaced(convmixer_run),
    **NO_BATCH_NORMALIZATION,
)
def convmixer():
    return convmixer_run()


def volumes_run():
    inputs = keras.Input((14, 14, 10, 1))
    x = inputs
    for filters in (4, 8):
        x = layers.Conv3D(filters=filters, kernel_size=3, activation="relu")(x)
        x = layers.MaxPool3D(pool_size=2)(x)
        x = layers.BatchNormalization()(x)
    x = layers.Dense(units=8, activation="relu")(layers.Flatten()(x))
    outputs = layers.Dense(units=1, activation="sigmoid")(layers.Dropout(0.3)(x))
    x, y = images(12, 14, 14, 10), integers(2, 12)

    def augmented(volume, label):
        turned = tf.numpy_function(lambda v: np.rot90(v).copy(), [volume], tf.float32)
        turned.set_shape((14, 14, 10))
        return tf.expand_dims(turned, axis=3), label

    data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(12).map(augmented).batch(2)
    schedule = keras.optimizers.schedules.ExponentialDecay(
        0.0001, decay_steps=100000, decay_rate=0.96, staircase=True
    )
    callbacks = [
        keras.callbacks.ModelCheckpoint("volumes.keras", save_best_only=True),
        keras.callbacks.EarlyStopping(monitor="val_acc", patience=15),
    ]
    fit = dict(x=data.prefetch(2), validation_data=data, shuffle=True, callbacks=callbacks)
    losses = dict(loss="binary_crossentropy", metrics=["acc"])
    return Run(keras.Model(inputs, outputs), fit, losses, keras.optimizers.Adam(schedule))


@example(
    KERAS_IO,
    "examples/vision/3D_image_classification.py",
    "3D convolutions, learning-rate schedule, volumes turned by NumPy in `tf.data`",
    statement=dict(batch_size=2, num_examples=12),
    remedied=replaced(volumes_run),
    **NO_BATCH_NORMALIZATION,
)
def volumes():
    return volumes_run()


def u_net_run():
    inputs = keras.Input(shape=(16, 16, 3))
    x = layers.Conv2D(4, 3, strides=2, padding="same")(inputs)
    x = layers.Activation("relu")(layers.BatchNormalization()(x))
    previous = x
    x = layers.Activation("relu")(x)
    x = layers.BatchNormalization()(layers.SeparableConv2D(8, 3, padding="same")(x))
    x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
    x = layers.add([x, layers.Conv2D(8, 1, strides=2, padding="same")(previous)])
    previous = x
    for filters in (8, 4):
        x = layers.Activation("relu")(x)
        x = layers.BatchNormalization()(layers.Conv2DTranspose(filters, 3, padding="same")(x))
        x = layers.UpSampling2D(2)(x)
        residual = layers.UpSampling2D(2)(previous)
        x = layers.add([x, layers.Conv2D(filters, 1, padding="same")(residual)])
        previous = x
    outputs = layers.Conv2D(3, 3, activation="softmax", padding="same")(x)
    data = tf.data.Dataset.from_tensor_slices((images(16, 16, 16, 3), integers(3, 16, 16, 16, 1)))
    data = data.batch(4)
    fit = dict(
        x=data,
        validation_data=data.take(2),
        callbacks=[keras.callbacks.ModelCheckpoint("segmentation.keras", save_best_only=True)],
    )
    losses = dict(loss="sparse_categorical_crossentropy")
    return Run(keras.Model(inputs, outputs), fit, losses, keras.optimizers.Adam(1e-4))


@example(
    KERAS_IO,
    "examples/vision/oxford_pets_image_segmentation.py",
    "residual U-Net with separable and transposed convolutions, masks of integers",
    statement=dict(batch_size=4, num_examples=16),
    remedied=replaced(u_net_run),
    **NO_BATCH_NORMALIZATION,
)
def u_net():
    return u_net_run()


@example(
    "zhixuhao/unet",
    "model.py",
    "U-Net from an endless Python generator, `steps_per_epoch`",
    statement=dict(batch_size=2, num_examples=12),
)
def u_net_of_generator():
    def conv(filters, size, x):
        return layers.Conv2D(
            filters, size, activation="relu", padding="same", kernel_initializer="he_normal"
        )(x)

    inputs = keras.Input((16, 16, 1))
    first = conv(4, 3, conv(4, 3, inputs))
    second = conv(8, 3, conv(8, 3, layers.MaxPooling2D(pool_size=(2, 2))(first)))
    dropped = layers.Dropout(0.5)(second)
    up = conv(4, 2, layers.UpSampling2D(size=(2, 2))(dropped))
    merged = layers.concatenate([first, up], axis=3)
    x = conv(2, 3, conv(4, 3, merged))
    model = keras.Model(inputs, layers.Conv2D(1, 1, activation="sigmoid")(x))
    x, y = images(12, 16, 16, 1), (images(12, 16, 16, 1) > 0.5).astype("float32")

    def batches():
        while True:
            for start in range(0, 12, 2):
                yield x[start : start + 2], y[start : start + 2]

    checkpoint = keras.callbacks.ModelCheckpoint(
        "unet.keras", monitor="loss", verbose=0, save_best_only=True
    )
    fit = dict(x=batches(), steps_per_epoch=6, callbacks=[checkpoint])
    losses = dict(loss="binary_crossentropy", metrics=["accuracy"])
    return Run(model, fit, losses, keras.optimizers.Adam(learning_rate=1e-4))


def classifier(filters):
    return keras.Sequential(
        [
            keras.Input(shape=(12, 12, 1)),
            layers.Conv2D(filters, (3, 3), strides=(2, 2), padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.MaxPooling2D(pool_size=(2, 2), strides=(1, 1), padding="same"),
            layers.Conv2D(filters * 2, (3, 3), strides=(2, 2), padding="same"),
            layers.Flatten(),
            layers.Dense(10),
        ]
    )


class Distiller(keras.Model):
    """The author's later version, with `compute_loss`; an earlier one has its own `train_step`."""

    def __init__(self, student, teacher):
        super().__init__()
        self.teacher = teacher
        self.student = student

    def compile(self, optimizer, metrics, student_loss_fn, distillation_loss_fn, **kwargs):
        super().compile(optimizer=optimizer, metrics=metrics, **kwargs)
        self.student_loss_fn = student_loss_fn
        self.distillation_loss_fn = distillation_loss_fn
        self.alpha, self.temperature = 0.1, 10

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, allow_empty=False, training=True
    ):
        teacher_pred = self.teacher(x, training=False)
        student_loss = self.student_loss_fn(y, y_pred)
        distillation_loss = self.distillation_loss_fn(
            ops.softmax(teacher_pred / self.temperature, axis=1),
            ops.softmax(y_pred / self.temperature, axis=1),
        ) * (self.temperature**2)
        return self.alpha * student_loss + (1 - self.alpha) * distillation_loss

    def call(self, x):
        return self.student(x)


def distillation_run(teacher):
    losses = dict(
        metrics=[keras.metrics.SparseCategoricalAccuracy()],
        student_loss_fn=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        distillation_loss_fn=keras.losses.KLDivergence(),
    )
    fit = dict(x=images(32, 12, 12, 1), y=integers(10, 32), batch_size=8)
    return Run(Distiller(classifier(4), teacher), fit, losses)


@example(
    KERAS_IO,
    "examples/vision/knowledge_distillation.py",
    "student and teacher, `compile` and `compute_loss` of the author's",
)
def distillation():
    return distillation_run(classifier(8))


EXAMPLES = [
    mnist_convnet,
    kaggle_digits,
    vision_transformer,
    compact_transformer,
    box_regression,
    yolo,
    super_resolution,
    convmixer,
    volumes,
    u_net,
    u_net_of_generator,
    distillation,
]
