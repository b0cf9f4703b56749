"""GEP: a subspace of public gradients.

GEP releases a gradient's coordinates in a subspace that gradients of public images span, and what
is left of it with a smaller clip. Public means: anybody may know these images, and nobody minds
that they were used. Here MNIST is private, and scikit-learn's digits, drawn larger, are public.
MNIST is read through `tensorflow_datasets` from where it was prepared (`TFDS_DATA_DIR`).
"""

# %%
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from sklearn.datasets import load_digits

import tf_lowrank_dp as tfdp

SMOKE = "--smoke" in sys.argv  # a few steps on made-up images

# %% [markdown]
# ## Public and private data

# %%
small = load_digits().images[: 200 if SMOKE else 1000].astype("float32") / 16.0
x_public = np.pad(small.repeat(3, axis=1).repeat(3, axis=2), ((0, 0), (2, 2), (2, 2)))[..., None]

if SMOKE:
    x = np.random.default_rng(0).uniform(size=(128, 28, 28, 1)).astype("float32")
    y = np.arange(128) % 10
    x_test, y_test = x[:32], y[:32]
else:
    import tensorflow_datasets as tfds

    splits = tfds.load("mnist", split=["train", "test"], batch_size=-1, download=False)
    train, test = tfds.as_numpy(splits)
    x, y = train["image"].astype("float32") / 255.0, train["label"]
    x_test, y_test = test["image"].astype("float32") / 255.0, test["label"]


# %% [markdown]
# ## The same network, twice
#
# Labels of public images are drawn at random, so none are needed. `refresh_every` keeps a subspace
# for several steps, which is most of the cost. DP-SGD is tuned as easily, and is the one to
# compare with.


# %%
def network() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Conv2D(16, 8, strides=2, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(2),
            keras.layers.Conv2D(32, 4, activation="relu"),
            keras.layers.MaxPooling2D(2),
            keras.layers.Flatten(),
            keras.layers.Dense(10),
        ]
    )


budget = {"epsilon": 2.0, "delta": 1e-5, "accountant": "rdp" if SMOKE else "pld"}
optimizers = {
    "DP-SGD": lambda inner: tfdp.DPSGDOptimizer(inner, l2_norm_clip=0.5, **budget),
    "GEP": lambda inner: tfdp.GEPOptimizer(
        inner,
        public_data=x_public,
        num_classes=10,
        num_bases=50 if SMOKE else 300,
        embedding_clip=1.0,
        residual_clip=0.4,
        refresh_every=20,
        **budget,
    ),
}
for name in ["GEP"] if SMOKE else optimizers:
    model = network()
    tfdp.make_private(model)
    model.compile(
        optimizers[name](keras.optimizers.SGD(0.5, momentum=0.9)),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(x, y, batch_size=32 if SMOKE else 1000, epochs=1 if SMOKE else 3, verbose=0)
    accuracy = model.evaluate(x_test, y_test, verbose=0, return_dict=True)["accuracy"]
    print(f"{name}: test accuracy {accuracy:.1%}, epsilon {tfdp.privacy_spent(model):.3f}")

# %% [markdown]
# ## What the subspace misses
#
# On data that may be looked at, `anchor_residuals` tells which part of the gradients the subspace
# does not hold, and how many of the two parts are clipped.

# %%
for group, found in tfdp.diagnostics.anchor_residuals(model, x_test[:32], y_test[:32]).items():
    print(f"{group:<40} missed {found.projection_error:.2f}, bases {found.num_bases}")
