"""Your own training loop.

`PrivateTrainer` is what `fit` is made of: losses of single examples in, private gradients out.
What happens before and after is yours: two models in turn, a schedule of your own, a student and
its teacher.
"""

# %%
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from sklearn.datasets import load_digits

import tf_lowrank_dp as tfdp

STEPS = 5 if "--smoke" in sys.argv else 120

# %%
images, labels = load_digits(return_X_y=True)
x, y = images.astype("float32")[:1400] / 16.0, labels[:1400]
x_test, y_test = images.astype("float32")[1400:] / 16.0, labels[1400:]

model = keras.Sequential(
    [keras.Input((64,)), keras.layers.Dense(64, "tanh"), keras.layers.Dense(10)]
)
tfdp.make_private(model)
model.compile(
    tfdp.DPSGDOptimizer(
        keras.optimizers.SGD(0.5, momentum=0.9), l2_norm_clip=1.0, epsilon=4.0, delta=1e-5
    )
)

# %% [markdown]
# ## The sampler and the trainer
#
# A batch is a dictionary: `x`, `y`, `presence`, which is 0 for rows of padding, and `draw`, which
# says which one it is. Draws differ in size, and no batch may be used twice: each call of
# `gradients` is one release.

# %%
sampler = tfdp.PoissonSampler(x, y, batch_size=400, steps=STEPS)
trainer = tfdp.PrivateTrainer(model, sampler, steps=STEPS)


# %% [markdown]
# ## The loss of each example
#
# It returns one loss for each row, and outputs, which are handed back. No mean: the trainer
# divides by the expected batch size. Everything that reads private examples has to be in here.


# %%
def forward(batch: dict) -> tuple:
    logits = model(batch["x"], training=True)
    losses = keras.losses.sparse_categorical_crossentropy(batch["y"], logits, from_logits=True)
    return losses, logits


# %% [markdown]
# ## The loop
#
# Gradients are public when they come out: print them, change the learning rate by them, stop by
# them.

# %%
for step, batch in enumerate(sampler, start=1):
    gradients = trainer.gradients(forward, batch)
    trainer.apply(gradients)
    if step % 40 == 0:
        norm = float(np.sqrt(sum(np.sum(np.square(g)) for g in gradients)))
        print(f"step {step}: norm of the private gradient {norm:.3f}")
        model.optimizer.learning_rate = model.optimizer.learning_rate / 2

# %% [markdown]
# ## What was spent
#
# The trainer counts, in the same ledger as `fit`, and refuses the step that would exceed the
# budget.

# %%
accuracy = np.mean(np.argmax(model.predict(x_test, verbose=0), 1) == y_test)
print(f"test accuracy {accuracy:.1%}")
print(tfdp.privacy_statement(model))
