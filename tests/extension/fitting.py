"""One private step on all rows, through `fit` alone, and what it must be by the oracle."""

import keras
import numpy as np

import tf_lowrank_dp as tfdp
from tests import oracle


def check_step(model, x, y, optimizer, sign=1.0, **arguments):
    """Without noise, a step at learning rate 1 subtracts the mean of the clipped gradients.

    Every row is drawn, once; half of them have gradients above the clip.

    Args:
        model: an ordinary Keras model.
        x: inputs, `(b, ...)`.
        y: targets, of the shape of the outputs.
        optimizer: class of a private optimizer.
        sign: of what is subtracted.
        **arguments: of the optimizer's own.
    """

    def losses(batch):
        errors = keras.ops.square(model(batch["x"]) - batch["y"])
        return keras.ops.mean(keras.ops.reshape(errors, (len(errors), -1)), -1)

    gradients = oracle.per_example_gradients(model, losses, {"x": x, "y": y})
    clip = float(np.median(oracle.norms(gradients)))
    sums = oracle.clipped_sums(gradients, np.ones(len(x)), clip)
    before = [np.asarray(v, np.float64) for v in model.trainable_variables]
    free = {"l2_norm_clip": clip, "noise_multiplier": 0.0, "seed": 3}
    tfdp.make_private(model)
    sgd = keras.optimizers.SGD(1.0)
    model.compile(optimizer(sgd, **free, **arguments), loss="mse", jit_compile=False)
    model.fit(x, y, batch_size=len(x), verbose=0)
    for v, old, total in zip(model.trainable_variables, before, sums, strict=True):
        step = old - np.asarray(v, np.float64)
        assert oracle.relative_error(step, sign * total / len(x)) < 1e-3, v.path
