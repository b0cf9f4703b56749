"""From TensorFlow Privacy.

The steps of TensorFlow Privacy's tutorial on classification (github.com/tensorflow/privacy,
`tutorials/`), its names in comments, beside what is written here. Its package imports on
TensorFlow 2.15 and older only, so its code is not run.
"""

# %%
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

import tf_lowrank_dp as tfdp

SMOKE = "--smoke" in sys.argv  # a few steps on made-up images

# %% [markdown]
# ## Data
#
# The same arrays. MNIST is read through `tensorflow_datasets` from where it was prepared
# (`TFDS_DATA_DIR`). Batches need not divide the number of images: they are Poisson samples, as the
# accountant assumes.

# %%
if SMOKE:
    x = np.random.default_rng(0).uniform(size=(256, 28, 28, 1)).astype("float32")
    y = np.arange(256) % 10
    x_test, y_test = x[:64], y[:64]
else:
    import tensorflow_datasets as tfds

    splits = tfds.load("mnist", split=["train", "test"], batch_size=-1, download=False)
    train, test = tfds.as_numpy(splits)
    x, y = train["image"].astype("float32") / 255.0, train["label"]
    x_test, y_test = test["image"].astype("float32") / 255.0, test["label"]

# %% [markdown]
# ## Hyperparameters
#
# | TensorFlow Privacy | here |
# | --- | --- |
# | `l2_norm_clip=1.5` | `l2_norm_clip=1.5` |
# | `noise_multiplier=1.3` | the same, or `epsilon=` and `delta=`: it is found for you |
# | `num_microbatches=250` | left out: every example is clipped by itself |
# | `learning_rate=0.25` | that of the inner optimizer |
#
# `make_private(model, microbatch_size=...)` bounds memory, and changes no result.

# %%
model = keras.Sequential(
    [
        keras.Input((28, 28, 1)),
        keras.layers.Conv2D(16, 8, strides=2, padding="same", activation="relu"),
        keras.layers.MaxPool2D(2, 1),
        keras.layers.Conv2D(32, 4, strides=2, padding="valid", activation="relu"),
        keras.layers.MaxPool2D(2, 1),
        keras.layers.Flatten(),
        keras.layers.Dense(32, activation="relu"),
        keras.layers.Dense(10),
    ]
)

# %% [markdown]
# ## Optimizer and loss
#
#     optimizer = tensorflow_privacy.DPKerasSGDOptimizer(
#         l2_norm_clip=..., noise_multiplier=..., num_microbatches=..., learning_rate=...)
#     loss = tf.keras.losses.SparseCategoricalCrossentropy(
#         from_logits=True, reduction=tf.losses.Reduction.NONE)
#
# Here any Keras optimizer is wrapped, and the loss keeps its reduction: the mean over the batch is
# taken apart.

# %%
tfdp.make_private(model)
model.compile(
    optimizer=tfdp.DPSGDOptimizer(
        keras.optimizers.SGD(0.25), l2_norm_clip=1.5, noise_multiplier=1.3, delta=1e-5
    ),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)

# %% [markdown]
# ## Training
#
#     model.fit(train_data, train_labels, epochs=..., validation_data=..., batch_size=250)
#
# The same. Without privacy the tutorial's batches of 250 are customary; larger ones cost less
# noise for each example.

# %%
EPOCHS, BATCH = (1, 64) if SMOKE else (3, 250)
model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, verbose=0)
accuracy = model.evaluate(x_test, y_test, verbose=0, return_dict=True)["accuracy"]
print(f"test accuracy {accuracy:.1%}")

# %% [markdown]
# ## Statement
#
#     compute_dp_sgd_privacy_statement(number_of_examples=..., batch_size=250, num_epochs=...,
#                                      noise_multiplier=1.3, delta=1e-5, ...)
#
# There the numbers are typed again. Here the model knows what it has spent; `dp_sgd_statement`
# takes numbers, for models that were trained elsewhere.

# %%
print(tfdp.privacy_statement(model))
numbers = {"batch_size": BATCH, "num_examples": len(x), "epochs": EPOCHS}
print(tfdp.dp_sgd_statement(1.3, 1e-5, **numbers).splitlines()[0])
