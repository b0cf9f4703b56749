"""Autoencoders, VAEs, GANs, masked convolutions, mixtures."""

import math

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

import tf_lowrank_dp as tfdp
from tests.compatibility.case import Run, example, images, normal
from tests.compatibility.tabular import GERON
from tests.compatibility.text import CHOLLET
from tests.compatibility.vision import KERAS_IO

FOSTER = "davidADSP/Generative_Deep_Learning_2nd_Edition"


class DenseTranspose(layers.Layer):
    def __init__(self, dense, activation=None, **kwargs):
        super().__init__(**kwargs)
        self.dense = dense
        self.activation = keras.activations.get(activation)

    def build(self, batch_input_shape):
        self.biases = self.add_weight(
            name="bias", shape=(self.dense.kernel.shape[0],), initializer="zeros"
        )
        super().build(batch_input_shape)

    def call(self, inputs):
        z = tf.matmul(inputs, self.dense.weights[0], transpose_b=True)
        return self.activation(z + self.biases)


@example(
    GERON,
    "17_autoencoders_gans_and_diffusion_models.ipynb",
    "autoencoder whose decoder uses the encoder's kernels, transposed",
)
def tied_autoencoder():
    dense_1, dense_2 = layers.Dense(10, activation="relu"), layers.Dense(5, activation="relu")
    encoder = keras.Sequential([layers.Flatten(), dense_1, dense_2])
    decoder = keras.Sequential(
        [
            DenseTranspose(dense_2, activation="relu"),
            DenseTranspose(dense_1),
            layers.Reshape([6, 6]),
        ]
    )
    x = images(32, 6, 6)
    fit = dict(x=x, y=x, validation_data=(x, x))
    model = keras.Sequential([encoder, decoder])
    return Run(model, fit, dict(loss="mse"), keras.optimizers.Nadam())


class KLDivergenceRegularizer(keras.regularizers.Regularizer):
    def __init__(self, weight, target, axis=0):
        self.weight, self.target, self.axis = weight, target, axis

    def __call__(self, inputs):
        mean = tf.reduce_mean(inputs, axis=self.axis)
        divergence = keras.losses.kl_divergence
        target = self.target * tf.ones_like(mean)
        return self.weight * (divergence(target, mean) + divergence(1.0 - target, 1.0 - mean))


def sparse_run(regularizer):
    encoder = keras.Sequential(
        [
            layers.Flatten(),
            layers.Dense(10, activation="relu"),
            layers.Dense(12, activation="sigmoid", activity_regularizer=regularizer),
        ]
    )
    decoder = keras.Sequential(
        [layers.Dense(10, activation="relu"), layers.Dense(36), layers.Reshape([6, 6])]
    )
    x = images(32, 6, 6)
    fit = dict(x=x, y=x, validation_data=(x, x))
    model = keras.Sequential([encoder, decoder])
    return Run(model, fit, dict(loss="mse"), keras.optimizers.Nadam())


@example(
    GERON,
    "17_autoencoders_gans_and_diffusion_models.ipynb",
    "sparse autoencoder: divergence of mean activities over the batch",
    cause="activity regulariser",
    reason="the regulariser is a function of the batch's mean activity",
    remedy="an L1 regulariser of activities, as the author's other sparse autoencoder",
    remedied=lambda: sparse_run(keras.regularizers.L1(1e-4)),
)
def sparse_autoencoder():
    return sparse_run(KLDivergenceRegularizer(weight=5e-3, target=0.1))


def encoder_and_decoder(sampling):
    inputs = keras.Input(shape=(12, 12, 1))
    x = layers.Conv2D(4, 3, activation="relu", strides=2, padding="same")(inputs)
    x = layers.Flatten()(layers.Conv2D(4, 3, activation="relu", strides=2, padding="same")(x))
    z_mean, z_log_var = layers.Dense(2, name="z_mean")(x), layers.Dense(2, name="z_log_var")(x)
    outputs = [z_mean, z_log_var]
    if sampling is not None:
        outputs.append(sampling()([z_mean, z_log_var]))
    encoder = keras.Model(inputs, outputs, name="encoder")
    latent = keras.Input(shape=(2,))
    x = layers.Reshape((3, 3, 4))(layers.Dense(3 * 3 * 4, activation="relu")(latent))
    x = layers.Conv2DTranspose(4, 3, activation="relu", strides=2, padding="same")(x)
    x = layers.Conv2DTranspose(4, 3, activation="relu", strides=2, padding="same")(x)
    x = layers.Conv2D(1, 3, activation="sigmoid", padding="same")(x)
    return encoder, keras.Model(latent, x, name="decoder")


class Sampling(layers.Layer):
    def call(self, inputs):
        z_mean, z_log_var = inputs
        noise = tf.random.normal(shape=tf.shape(z_mean))
        return z_mean + tf.exp(0.5 * z_log_var) * noise


def divergence(z_mean, z_log_var):
    return -0.5 * (1 + z_log_var - tf.square(z_mean) - tf.exp(z_log_var))


class VAEWithStep(keras.Model):
    def __init__(self, encoder, decoder, **kwargs):
        super().__init__(**kwargs)
        self.encoder, self.decoder = encoder, decoder
        self.total_loss_tracker = keras.metrics.Mean(name="total_loss")

    @property
    def metrics(self):
        return [self.total_loss_tracker]

    def call(self, inputs):
        z_mean, z_log_var, z = self.encoder(inputs)
        return z_mean, z_log_var, self.decoder(z)

    def loss_of(self, data, outputs):
        z_mean, z_log_var, reconstruction = outputs
        losses = 500 * keras.losses.binary_crossentropy(data, reconstruction, axis=(1, 2, 3))
        kl = tf.reduce_sum(divergence(z_mean, z_log_var), axis=1)
        return tf.reduce_mean(losses) + tf.reduce_mean(kl)

    def train_step(self, data):
        with tf.GradientTape() as tape:
            total_loss = self.loss_of(data, self(data))
        gradients = tape.gradient(total_loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
        self.total_loss_tracker.update_state(total_loss)
        return {m.name: m.result() for m in self.metrics}


class VAEWithLoss(VAEWithStep):
    train_step = keras.Model.train_step

    @property
    def metrics(self):
        return keras.Model.metrics.fget(self)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return self.loss_of(x, y_pred)


def vae_run(kind):
    fit = dict(x=images(32, 12, 12, 1), batch_size=8, shuffle=True)
    optimizer = keras.optimizers.Adam(learning_rate=0.0005)
    return Run(kind(*encoder_and_decoder(Sampling)), fit, {}, optimizer)


@example(
    FOSTER,
    "notebooks/03_vae/02_vae_fashion/vae_fashion.ipynb",
    "VAE with a `train_step` of its own",
    cause="train_step",
    reason="its step computes gradients of the batch",
    remedy="the same loss in `compute_loss` ([custom loops](custom_loops.md))",
    remedied=lambda: vae_run(VAEWithLoss),
)
def vae_with_step():
    return vae_run(VAEWithStep)


class Sampler(keras.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seed_generator = keras.random.SeedGenerator()
        self.built = True

    def call(self, z_mean, z_log_var):
        noise = keras.random.normal(shape=ops.shape(z_mean), seed=self.seed_generator)
        return z_mean + ops.exp(0.5 * z_log_var) * noise


class VAE(keras.Model):
    def __init__(self, encoder, decoder, **kwargs):
        super().__init__(**kwargs)
        self.encoder, self.decoder, self.sampler = encoder, decoder, Sampler()
        self.reconstruction_loss_tracker = keras.metrics.Mean(name="reconstruction_loss")
        self.kl_loss_tracker = keras.metrics.Mean(name="kl_loss")

    def call(self, inputs):
        return self.encoder(inputs)

    def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
        z_mean, z_log_var = y_pred
        reconstruction = self.decoder(self.sampler(z_mean, z_log_var))
        losses = ops.sum(keras.losses.binary_crossentropy(x, reconstruction), axis=(1, 2))
        reconstruction_loss = ops.mean(losses)
        kl_loss = divergence(z_mean, z_log_var)
        self.reconstruction_loss_tracker.update_state(reconstruction_loss)
        self.kl_loss_tracker.update_state(kl_loss)
        return reconstruction_loss + ops.mean(kl_loss)


class VAEWithoutMetrics(VAE):
    def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
        z_mean, z_log_var = y_pred
        reconstruction = self.decoder(self.sampler(z_mean, z_log_var))
        losses = ops.sum(keras.losses.binary_crossentropy(x, reconstruction), axis=(1, 2))
        return ops.mean(losses) + ops.mean(divergence(z_mean, z_log_var))


def own_loss_run(kind):
    fit = dict(x=images(32, 12, 12, 1), batch_size=8)
    return Run(kind(*encoder_and_decoder(None)), fit, {}, keras.optimizers.Adam())


@example(
    CHOLLET,
    "chapter17_image-generation.ipynb",
    "VAE: `compute_loss` decodes, samples, and updates metrics of the parts",
    remedied=lambda: own_loss_run(VAEWithoutMetrics),
    cause="keeps something of the examples",
    reason="a metric inside of the model keeps sums over examples, without noise",
    remedy="leave its updates out; metrics given to `compile` are unharmed",
)
def vae_with_loss():
    return own_loss_run(VAE)


class ConditionalGAN(keras.Model):
    def __init__(self, discriminator, generator, latent_dim):
        super().__init__()
        self.discriminator, self.generator = discriminator, generator
        self.latent_dim = latent_dim
        self.seed_generator = keras.random.SeedGenerator(1337)

    def compile(self, optimizer, g_optimizer, loss_fn, **kwargs):
        super().compile(optimizer=optimizer, **kwargs)
        self.g_optimizer, self.loss_fn = g_optimizer, loss_fn

    def train_step(self, data):
        real, labels = data
        noise = keras.random.normal((tf.shape(real)[0], self.latent_dim), seed=self.seed_generator)
        fake = self.generator(tf.concat([noise, labels], 1))
        pairs = tf.concat([tf.concat([fake, labels], 1), tf.concat([real, labels], 1)], 0)
        truth = tf.concat([tf.ones_like(fake[:, :1]), tf.zeros_like(fake[:, :1])], 0)
        with tf.GradientTape() as tape:
            loss = self.loss_fn(truth, self.discriminator(pairs))
        weights = self.discriminator.trainable_weights
        gradients = tape.gradient(loss, weights)
        self.optimizer.apply_gradients(zip(gradients, weights, strict=True))
        with tf.GradientTape() as tape:
            fake = tf.concat([self.generator(tf.concat([noise, labels], 1)), labels], 1)
            loss = self.loss_fn(tf.zeros_like(fake[:, :1]), self.discriminator(fake))
        weights = self.generator.trainable_weights
        gradients = tape.gradient(loss, weights)
        self.g_optimizer.apply_gradients(zip(gradients, weights, strict=True))
        return {"loss": loss}


def gan_parts():
    discriminator = keras.Sequential(
        [
            keras.Input((10,)),
            layers.Dense(8),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Dense(1),
        ]
    )
    generator = keras.Sequential([keras.Input((6,)), layers.Dense(8, "relu"), layers.Dense(8)])
    return discriminator, generator


def gan_by_trainer():
    """Labels are public here: they are drawn anew for the fakes."""
    discriminator, generator = gan_parts()
    tfdp.make_private(discriminator)
    discriminator.compile(
        tfdp.DPSGDOptimizer("adam", l2_norm_clip=1.0, noise_multiplier=1.0, delta=1e-5)
    )
    of_generator = keras.optimizers.Adam(0.0003)
    labels = np.eye(2, dtype="float32")[np.arange(32) % 2]
    sampler = tfdp.PoissonSampler(normal(32, 8), labels, batch_size=8, steps=2)
    trainer = tfdp.PrivateTrainer(discriminator, sampler)

    def judge(batch):
        real, label = batch["x"], batch["y"]
        noise = tf.random.normal([tf.shape(real)[0], 4])
        fake = tf.stop_gradient(generator(tf.concat([noise, label], 1)))
        of_fake = discriminator(tf.concat([fake, label], 1))
        of_real = discriminator(tf.concat([real, label], 1))
        return tf.nn.softplus(-of_fake)[:, 0] + tf.nn.softplus(of_real)[:, 0], ()

    for batch in sampler:
        trainer.apply(trainer.gradients(judge, batch))
        label = tf.one_hot(tf.random.uniform([8], 0, 2, tf.int32), 2)
        with tf.GradientTape() as tape:
            fake = generator(tf.concat([tf.random.normal([8, 4]), label], 1))
            loss = tf.reduce_mean(tf.nn.softplus(discriminator(tf.concat([fake, label], 1))))
        weights = generator.trainable_variables
        of_generator.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
    return discriminator


@example(
    KERAS_IO,
    "examples/generative/conditional_gan.py",
    "conditional GAN, of dense layers here: a `train_step` with two models and two optimizers",
    statement=dict(batch_size=8, num_examples=32),
    cause="train_step",
    reason="its step computes gradients of the batch",
    remedy="`tfdp.PrivateTrainer` for the discriminator ([custom loops](custom_loops.md))",
    remedied=gan_by_trainer,
)
def conditional_gan():
    labels = np.eye(2, dtype="float32")[np.arange(32) % 2]
    data = tf.data.Dataset.from_tensor_slices((normal(32, 8), labels)).shuffle(32).batch(8)
    losses = dict(
        g_optimizer=keras.optimizers.Adam(learning_rate=0.0003),
        loss_fn=keras.losses.BinaryCrossentropy(from_logits=True),
    )
    return Run(ConditionalGAN(*gan_parts(), 4), dict(x=data), losses)


class PixelConvLayer(layers.Layer):
    def __init__(self, mask_type, **kwargs):
        super().__init__()
        self.mask_type = mask_type
        self.conv = layers.Conv2D(**kwargs)

    def build(self, input_shape):
        self.conv.build(input_shape)
        height, width, *_ = shape = self.conv.kernel.shape
        self.mask = np.zeros(shape=shape)
        self.mask[: height // 2, ...] = 1.0
        self.mask[height // 2, : width // 2, ...] = 1.0
        if self.mask_type == "B":
            self.mask[height // 2, width // 2, ...] = 1.0

    def call(self, inputs):
        self.conv.kernel.assign(self.conv.kernel * self.mask)
        return self.conv(inputs)


class Mask(keras.constraints.Constraint):
    def __init__(self, mask):
        self.mask = mask

    def __call__(self, kernel):
        return kernel * ops.cast(self.mask, kernel.dtype)


class PixelConvOfConstrainedKernel(PixelConvLayer):
    def build(self, input_shape):
        super().build(input_shape)
        self.conv.kernel.assign(self.conv.kernel * self.mask)
        self.conv.kernel.constraint = Mask(self.mask)

    def call(self, inputs):
        return self.conv(inputs)


class ResidualBlock(layers.Layer):
    def __init__(self, kind, filters, **kwargs):
        super().__init__(**kwargs)
        self.conv1 = layers.Conv2D(filters=filters, kernel_size=1, activation="relu")
        self.pixel_conv = kind(
            mask_type="B", filters=filters // 2, kernel_size=3, activation="relu", padding="same"
        )
        self.conv2 = layers.Conv2D(filters=filters, kernel_size=1, activation="relu")

    def call(self, inputs):
        return layers.add([inputs, self.conv2(self.pixel_conv(self.conv1(inputs)))])


def pixel_run(kind):
    inputs = keras.Input(shape=(8, 8, 1), batch_size=None)
    x = kind(mask_type="A", filters=4, kernel_size=5, activation="relu", padding="same")(inputs)
    x = ResidualBlock(kind, filters=4)(x)
    x = kind(mask_type="B", filters=4, kernel_size=1, activation="relu", padding="valid")(x)
    outputs = layers.Conv2D(filters=1, kernel_size=1, activation="sigmoid", padding="valid")(x)
    x = (images(40, 8, 8, 1) > 0.33).astype("float32")
    fit = dict(x=x, y=x, batch_size=8, validation_split=0.1, verbose=2)
    optimizer = keras.optimizers.Adam(learning_rate=0.0005)
    losses = dict(loss="binary_crossentropy")
    return Run(keras.Model(inputs, outputs), fit, losses, optimizer)


@example(
    KERAS_IO,
    "examples/generative/pixelcnn.py",
    "PixelCNN: `call` assigns the masked kernel",
    cause="changes no state",
    reason="the forward pass changes a variable",
    remedy="mask the kernel once, and give it a constraint that masks it after each update",
    remedied=lambda: pixel_run(PixelConvOfConstrainedKernel),
)
def pixel_cnn():
    return pixel_run(PixelConvLayer)


class MixtureDensityOutput(layers.Layer):
    def __init__(self, output_dimension, num_mixtures, **kwargs):
        super().__init__(**kwargs)
        parts = output_dimension * num_mixtures
        self.mdn_mus = layers.Dense(parts, name="mdn_mus")
        self.mdn_sigmas = layers.Dense(
            parts, activation=lambda x: keras.activations.elu(x) + 1 + 1e-7, name="mdn_sigmas"
        )
        self.mdn_pi = layers.Dense(num_mixtures, name="mdn_pi")

    def build(self, input_shape):
        self.mdn_mus.build(input_shape)
        self.mdn_sigmas.build(input_shape)
        self.mdn_pi.build(input_shape)
        super().build(input_shape)

    @property
    def trainable_weights(self):
        parts = (self.mdn_mus, self.mdn_sigmas, self.mdn_pi)
        return [weight for part in parts for weight in part.trainable_weights]

    @property
    def non_trainable_weights(self):
        return []

    def call(self, x, mask=None):
        return layers.concatenate([self.mdn_mus(x), self.mdn_sigmas(x), self.mdn_pi(x)])


def mixture_loss(num_mixes):
    def mdn_loss_func(y_true, y_pred):
        y_pred = tf.reshape(y_pred, [-1, 3 * num_mixes])
        y_true = tf.reshape(y_true, [-1, 1])
        mu, sigma, pi = tf.split(y_pred, [num_mixes] * 3, axis=-1)
        of_parts = -(((y_true - mu) / sigma) ** 2) / 2 - tf.math.log(sigma)
        of_parts -= math.log(2 * math.pi) / 2
        return tf.reduce_mean(-tf.reduce_logsumexp(tf.nn.log_softmax(pi) + of_parts, axis=-1))

    return mdn_loss_func


@example(
    KERAS_IO,
    "examples/keras_recipes/approximating_non_function_mappings.py",
    "mixture density network, not built: loss of a mixture that takes a mean, two callbacks",
)
def mixture_density():
    model = keras.Sequential(
        [
            layers.Dense(8, activation="relu"),
            layers.Dense(8, activation="relu"),
            MixtureDensityOutput(1, 4),
        ]
    )
    callbacks = [
        keras.callbacks.EarlyStopping(monitor="loss", patience=10, restore_best_weights=True),
        keras.callbacks.ReduceLROnPlateau(monitor="loss", patience=5),
    ]
    fit = dict(
        x=normal(40, 1), y=images(40), batch_size=16, validation_split=0.15, callbacks=callbacks
    )
    return Run(model, fit, dict(loss=mixture_loss(4)))


EXAMPLES = [
    tied_autoencoder,
    sparse_autoencoder,
    vae_with_step,
    vae_with_loss,
    conditional_gan,
    pixel_cnn,
    mixture_density,
]
