"""Budgets over several fits, with checkpoints.

What was spent belongs to the weights. It adds up over calls of `fit`, is saved with the model, and
is there again when the model is loaded.
"""

# %%
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
from sklearn.datasets import load_digits

import tf_lowrank_dp as tfdp

SMOKE = "--smoke" in sys.argv  # fewer epochs

# %%
images, labels = load_digits(return_X_y=True)
x, y = images.astype("float32") / 16.0, labels
folder = Path(tempfile.mkdtemp())
model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(10)])

# %% [markdown]
# ## One budget for all that is to come
#
# `planned_steps` says how many steps the budget shall last. `ledger_path` names a file that is
# written before each step, so that steps count that a crash takes from the weights.

# %%
EPOCHS = 2 if SMOKE else 10
STEPS = 3 * EPOCHS * -(-len(x) // 300)
tfdp.make_private(model, ledger_path=folder / "ledger.jsonl")
model.compile(
    tfdp.DPSGDOptimizer(
        keras.optimizers.SGD(0.5, momentum=0.9),
        l2_norm_clip=1.0,
        epsilon=4.0,
        delta=1e-5,
        planned_steps=STEPS,
        accountant="rdp" if SMOKE else "pld",
    ),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)

# %% [markdown]
# ## First fit: epsilon in the logs, checkpoints on disk
#
# `PrivacyBudget` shows epsilon, and can stop earlier than the optimizer's target. Put it before
# callbacks that read the logs.

# %%
checkpoint = folder / "model.keras"
callbacks = [tfdp.PrivacyBudget(), keras.callbacks.ModelCheckpoint(checkpoint)]
history = model.fit(x, y, batch_size=300, epochs=EPOCHS, callbacks=callbacks, verbose=0)
print(f"after the first fit:  epsilon {history.history['epsilon'][-1]:.3f}")

# %% [markdown]
# ## Second fit: what was spent goes on

# %%
model.fit(x, y, batch_size=300, epochs=EPOCHS, callbacks=callbacks, verbose=0)
print(f"after the second fit: epsilon {tfdp.privacy_spent(model):.3f}")

# %% [markdown]
# ## A loaded model knows
#
# Call `make_private` again to train it on.

# %%
loaded = keras.models.load_model(checkpoint)
print(f"loaded from the file: epsilon {tfdp.privacy_spent(loaded):.3f}")
tfdp.make_private(loaded, ledger_path=folder / "ledger.jsonl")
loaded.fit(x, y, batch_size=300, epochs=EPOCHS, verbose=0)
print(f"after the third fit:  epsilon {tfdp.privacy_spent(loaded):.3f}")

# %% [markdown]
# ## The budget is spent
#
# The next step would exceed it, so it is not taken.

# %%
try:
    loaded.fit(x, y, batch_size=300, epochs=EPOCHS, verbose=0)
except tfdp.PrivacyBudgetExceededError as error:
    print(f"{type(error).__name__}: {str(error)[:100]} ...")
figure = tfdp.plot_privacy(loaded)
figure.savefig(folder / "privacy.png")
print(tfdp.privacy_statement(loaded))
