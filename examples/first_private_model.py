"""First private model.

Train a classifier of handwritten digits so that its weights tell almost nothing about any one
image. The data come with scikit-learn; nothing is downloaded.
"""

# %%
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import tf_lowrank_dp as tfdp

SMOKE = "--smoke" in sys.argv  # a few steps: does it run?

# %% [markdown]
# ## Data
#
# The 1,437 training images are what is protected. Test images are taken as public.

# %%
images, labels = load_digits(return_X_y=True)
x, x_test, y, y_test = train_test_split(
    images.astype("float32") / 16.0, labels, test_size=360, stratify=labels, random_state=0
)

# %% [markdown]
# ## Model
#
# An ordinary Keras model. `make_private` prepares it in place; layers that mix the examples of a
# batch would be refused when training starts, with a sentence that says what to do.

# %%
model = keras.Sequential(
    [
        keras.Input((64,)),
        keras.layers.Dense(64, activation="tanh"),
        keras.layers.Dense(10),
    ]
)
tfdp.make_private(model)

# %% [markdown]
# ## Optimizer
#
# A private optimizer is wrapped around one of Keras'. Every example's gradient is clipped to
# `l2_norm_clip`, and noise is added to their sum. How much noise follows from `epsilon`, `delta`,
# the batch size and the number of epochs: it is calibrated when `fit` starts. `delta` should be
# below one over the number of examples.

# %%
model.compile(
    optimizer=tfdp.DPSGDOptimizer(
        keras.optimizers.SGD(0.5, momentum=0.9), l2_norm_clip=1.0, epsilon=3.0, delta=1e-5
    ),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)

# %% [markdown]
# ## Training
#
# `fit` draws Poisson samples: each step has each image with probability `batch_size / 1437`. Large
# batches are better here than without privacy, because the noise is the same for any batch.

# %%
model.fit(x, y, batch_size=512, epochs=2 if SMOKE else 30, verbose=0)
accuracy = model.evaluate(x_test, y_test, verbose=0, return_dict=True)["accuracy"]
print(f"test accuracy {accuracy:.1%}, noise {model.optimizer.calibrated_noise_multiplier:.2f}")

# %% [markdown]
# ## What was spent
#
# The statement says what is guaranteed and what it rests on. `privacy_report` has the same as JSON
# or Markdown, for a paper or a model card.

# %%
print(tfdp.privacy_statement(model))
