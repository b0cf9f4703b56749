"""Your own data pipeline, with a statement of how it samples.

Epsilon depends on how batches are drawn. From arrays `fit` draws them itself. There are three ways
for data that are read or augmented on the way: let the library draw records by index, or state
what your own pipeline does.
"""

# %%
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

import tf_lowrank_dp as tfdp

SMOKE = "--smoke" in sys.argv  # a tenth of the data
NUM, BATCH, EPOCHS = (1_000, 100, 1) if SMOKE else (10_000, 500, 4)

# %% [markdown]
# Made-up images with a bright half, on the left or on the right, as bytes.

# %%
generator = np.random.default_rng(0)
labels = generator.integers(0, 2, NUM)
images = generator.integers(0, 200, (NUM, 16, 16, 1))
images[labels == 0, :, :8] += 50
images[labels == 1, :, 8:] += 50
images = images.astype("uint8")


def private_model() -> keras.Model:
    model = keras.Sequential(
        [keras.Input((16, 16, 1)), keras.layers.Flatten(), keras.layers.Dense(2)]
    )
    tfdp.make_private(model)
    model.compile(
        tfdp.DPSGDOptimizer(
            keras.optimizers.SGD(0.5), l2_norm_clip=1.0, noise_multiplier=2.0, delta=1e-5
        ),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model


def report(name: str, model: keras.Model) -> None:
    right = np.mean(np.argmax(model.predict(images / 255.0, verbose=0), 1) == labels)
    print(f"{name:<28} accuracy {right:.1%}   epsilon {tfdp.privacy_spent(model):.3f}")


# %% [markdown]
# ## Records by index: Poisson samples of data on disk
#
# `Records` reads only what is drawn, and maps it afterwards; here it scales and flips. Random
# numbers of the map are secret. This has the smallest epsilon, and nothing is left for you to
# promise.


# %%
def augmented(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.image.random_flip_up_down(tf.cast(image, tf.float32) / 255.0), label


model = private_model()
model.fit(tfdp.Records((images, labels), map=augmented), batch_size=BATCH, epochs=EPOCHS, verbose=0)
report("Records", model)

# %% [markdown]
# ## A `tf.data.Dataset` that shuffles
#
# Every image is in one batch of a pass: say `sampling="shuffle"`. There is no amplification by
# sampling then, so the same noise gives a larger epsilon, for replacing an image instead of adding
# or removing one. Without the statement `fit` refuses.

# %%
dataset = tf.data.Dataset.from_tensor_slices((images, labels))
dataset = dataset.shuffle(NUM).batch(BATCH).map(augmented)
model = private_model()
model.fit(dataset, sampling="shuffle", batch_size=BATCH, num_examples=NUM, epochs=EPOCHS, verbose=0)
report("tf.data, shuffled passes", model)


# %% [markdown]
# ## A generator that draws Poisson samples
#
# If your own code draws each image by a coin of its own, say `sampling="poisson"` with the rate.
# It is a promise: nobody can check it. The coins must be secret, so no seed is given.


# %%
def draws(rate: float):
    coins = np.random.default_rng()
    while True:
        drawn = coins.random(NUM) < rate
        yield images[drawn].astype("float32") / 255.0, labels[drawn]


model = private_model()
model.fit(
    draws(BATCH / NUM),
    sampling="poisson",
    sampling_rate=BATCH / NUM,
    batch_size=BATCH,
    num_examples=NUM,
    steps_per_epoch=NUM // BATCH,
    epochs=EPOCHS,
    verbose=0,
)
report("generator, Poisson samples", model)
print(tfdp.privacy_statement(model))
