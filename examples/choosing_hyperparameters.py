"""Choosing hyperparameters.

Results on private data are not private, and so is a choice by them. What can be chosen without the
data is chosen first, by a plan; the rest on public data of a like kind.
"""

# %%
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from sklearn.datasets import load_digits

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.__main__ import main as command_line

SMOKE = "--smoke" in sys.argv  # fewer trials and epochs

# %% [markdown]
# ## Batch size and epochs: a plan
#
# From the number of examples and the budget alone, on the command line: `python -m tf_lowrank_dp
# plan --examples 1000 --epsilon 4 --delta 1e-5`. Where signal to noise hardly grows any more,
# larger batches and more epochs only cost time.

# %%
sizes, epochs = (["250"], ["10"]) if SMOKE else (["50", "250", "500"], ["10", "30", "90"])
budget = ["--examples", "1000", "--epsilon", "4", "--delta", "1e-5"]
command_line(["plan", *budget, "--batch-sizes", *sizes, "--epochs", *epochs])

# %% [markdown]
# ## Learning rate and clip norm: public data
#
# The last digits are taken as public, the first as private. Each trial trains as the final model
# will, on as many examples as there are; its epsilon would be of the public data, so it does not
# matter. KerasTuner does the same with more convenience: see the page on reports.

# %%
images, labels = load_digits(return_X_y=True)
images = images.astype("float32") / 16.0
x, y = images[:1000], labels[:1000]
x_public, y_public, x_valid, y_valid = (
    images[1000:1500],
    labels[1000:1500],
    images[1500:],
    labels[1500:],
)


def train(x: np.ndarray, y: np.ndarray, rate: float, clip: float) -> keras.Model:
    model = keras.Sequential(
        [keras.Input((64,)), keras.layers.Dense(32, "tanh"), keras.layers.Dense(10)]
    )
    tfdp.make_private(model)
    model.compile(
        tfdp.DPSGDOptimizer(
            keras.optimizers.SGD(rate, momentum=0.9), l2_norm_clip=clip, epsilon=4.0, delta=1e-5
        ),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(x, y, batch_size=len(x) // 4, epochs=2 if SMOKE else 30, verbose=0)
    return model


# %%
accuracies = {}
for rate in (0.5,) if SMOKE else (0.1, 0.3, 1.0):
    for clip in (1.0,) if SMOKE else (0.3, 1.0):
        trial = train(x_public, y_public, rate, clip)
        found = trial.evaluate(x_valid, y_valid, verbose=0, return_dict=True)["accuracy"]
        accuracies[rate, clip] = found
        print(f"learning rate {rate}, clip norm {clip}: {found:.1%}")
best = max(accuracies, key=accuracies.get)

# %% [markdown]
# ## One run on the private data, and a report that says so

# %%
model = train(x, y, *best)
accuracy = model.evaluate(x_valid, y_valid, verbose=0, return_dict=True)["accuracy"]
print(f"private model: {accuracy:.1%} on public images")
report = tfdp.privacy_report(model, hyperparameter_search=f"{len(accuracies)} trials, public data")
print(report.to_markdown())
