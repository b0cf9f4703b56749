"""Auditing a model.

A privacy statement is an upper bound that is proven. An audit attacks the model and gives a lower
bound that is measured. Here canaries, half of which are trained on, show what an attacker finds,
without privacy and with it.
"""

# %%
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from sklearn.datasets import load_digits

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.auditing import membership_inference, one_run_audit, per_example_losses

SMOKE = "--smoke" in sys.argv  # fewer epochs

# %% [markdown]
# ## Canaries
#
# Digits with a wrong label: a model only knows them by heart. A coin decides for each whether it
# is in the training data.

# %%
images, labels = load_digits(return_X_y=True)
images = images.astype("float32") / 16.0
generator = np.random.default_rng(0)
canaries = images[:600]
wrong = (labels[:600] + generator.integers(1, 10, 600)) % 10
included = generator.integers(0, 2, 600).astype(bool)
x = np.concatenate([images[600:], canaries[included]])
y = np.concatenate([labels[600:], wrong[included]])


def network() -> keras.Model:
    return keras.Sequential(
        [keras.Input((64,)), keras.layers.Dense(256, "relu"), keras.layers.Dense(10)]
    )


loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

# %% [markdown]
# ## Without privacy, and with it

# %%
plain = network()
plain.compile(keras.optimizers.Adam(3e-3), loss=loss)
plain.fit(x, y, batch_size=64, epochs=5 if SMOKE else 100, verbose=0)

private = network()
tfdp.make_private(private)
private.compile(
    tfdp.DPSGDOptimizer(
        keras.optimizers.SGD(0.5, momentum=0.9), l2_norm_clip=1.0, epsilon=4.0, delta=1e-5
    ),
    loss=loss,
)
private.fit(x, y, batch_size=400, epochs=2 if SMOKE else 40, verbose=0)

# %% [markdown]
# ## Two attacks
#
# `one_run_audit` guesses which canaries were in by their losses, and bounds epsilon from below
# with 95 % confidence. `membership_inference` says how often an attacker is right. Above the
# reported epsilon an audit would disprove the guarantee; below it, it proves nothing.

# %%
for name, model in {"plain": plain, "private": private}.items():
    losses = per_example_losses(model, canaries, wrong)
    print(f"{name}\n  {one_run_audit(-losses, included, delta=1e-5)}")
    print(f"  {membership_inference(losses[included], losses[~included])}")
print(f"reported: epsilon {tfdp.privacy_spent(private):.3f} at delta 1e-5")

# %% [markdown]
# Losses of training examples are not private: do not publish them, nor let one model's audit
# decide what the next is trained on.
