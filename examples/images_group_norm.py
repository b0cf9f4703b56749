"""Images: a residual network with GroupNorm.

BatchNormalization takes its statistics from the whole batch, so that one image changes the
gradients of all others. No clipping of single gradients bounds that; GroupNormalization, which
looks at one image at a time, takes its place. CIFAR-10 is read through `tensorflow_datasets` from
where it was prepared (`TFDS_DATA_DIR`); nothing is downloaded.
"""

# %%
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

import tf_lowrank_dp as tfdp

SMOKE = "--smoke" in sys.argv  # a few steps on made-up images


# %%
def cifar10(train: int, test: int) -> tuple[np.ndarray, ...]:
    """Images in [-1, 1] and labels."""
    if SMOKE:
        generator = np.random.default_rng(0)
        draw = generator.uniform(-1.0, 1.0, (train + test, 32, 32, 3)).astype("float32")
        classes = generator.integers(0, 10, train + test)
    else:
        import tensorflow_datasets as tfds

        parts = [f"train[:{train}]", f"test[:{test}]"]
        splits = tfds.load("cifar10", split=parts, batch_size=-1, download=False)
        (a, b) = tfds.as_numpy(splits)
        draw = np.concatenate([a["image"], b["image"]]).astype("float32") / 127.5 - 1.0
        classes = np.concatenate([a["label"], b["label"]])
    return draw[:train], classes[:train], draw[train:], classes[train:]


x, y, x_test, y_test = cifar10(64, 16) if SMOKE else cifar10(10_000, 2_000)


# %% [markdown]
# ## A network as it is found elsewhere


# %%
def block(inputs: keras.KerasTensor, filters: int, strides: int) -> keras.KerasTensor:
    """A residual block with BatchNormalization."""
    pooled = keras.layers.AveragePooling2D(strides)(inputs)
    part = keras.layers.Conv2D(filters, 3, padding="same", use_bias=False)(pooled)
    part = keras.layers.Activation("relu")(keras.layers.BatchNormalization()(part))
    part = keras.layers.Conv2D(filters, 3, padding="same", use_bias=False)(part)
    part = keras.layers.BatchNormalization()(part)
    short = keras.layers.Conv2D(filters, 1)(pooled)
    return keras.layers.Activation("relu")(keras.layers.Add()([part, short]))


inputs = keras.Input((32, 32, 3))
features = inputs
for filters in (16,) if SMOKE else (16, 32, 64):
    features = block(features, filters, strides=2)
pooled = keras.layers.GlobalAveragePooling2D()(features)
model = keras.Model(inputs, keras.layers.Dense(10)(pooled))

# %% [markdown]
# ## The remedy
#
# `replace_batch_normalization` returns a model in which GroupNormalization stands for each
# BatchNormalization. Trained weights of the other layers are kept.

# %%
model = tfdp.replace_batch_normalization(model)
tfdp.make_private(model, microbatch_size=32 if SMOKE else 250)
print(tfdp.explain(model))

# %% [markdown]
# ## Training
#
# `microbatch_size` bounds memory: a draw is processed in parts, with one release of noise for all
# of them.

# %%
model.compile(
    tfdp.DPSGDOptimizer(
        keras.optimizers.SGD(1.0, momentum=0.9),
        l2_norm_clip=1.0,
        epsilon=8.0,
        delta=1e-5,
        accountant="rdp" if SMOKE else "pld",
    ),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
model.fit(x, y, batch_size=32 if SMOKE else 1000, epochs=1 if SMOKE else 6, verbose=0)
accuracy = model.evaluate(x_test, y_test, verbose=0, return_dict=True)["accuracy"]
print(f"\ntest accuracy {accuracy:.1%} after {len(x)} images and few epochs")
print(tfdp.privacy_statement(model))
