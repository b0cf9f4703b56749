"""Small models and one private step of an optimizer on them, outside of any training loop."""

import keras
import numpy as np
import tensorflow as tf

from tf_lowrank_dp.layers.parameters import describe_parameters
from tf_lowrank_dp.mechanism.engine import PrivateGradients
from tf_lowrank_dp.mechanism.gaussian import GaussianMechanism
from tf_lowrank_dp.mechanism.noise import NoiseGenerator
from tf_lowrank_dp.per_example.parameter import MatrixView, Parameter

EXACT = {"l2_norm_clip": float("inf"), "noise_multiplier": 0.0}
HEADS, MERGE = ((0,), (1, 2)), ((0, 1), (2,))
AXES = {"/query/": HEADS, "/key/": HEADS, "/value/": HEADS, "attention_output/": MERGE}


def mixed_model(seed=0):
    """Dense, attention and convolution kernels on sequences `(6, 5)`."""
    keras.utils.set_random_seed(seed)
    inputs = keras.Input((6, 5))
    x = keras.layers.Dense(8, activation="tanh", name="hidden")(inputs)
    x = keras.layers.MultiHeadAttention(2, 3, name="mha")(x, x)
    x = keras.layers.Conv1D(7, 3, padding="same", activation="tanh", name="conv")(x)
    x = keras.layers.Flatten()(x)
    return keras.Model(inputs, keras.layers.Dense(3, name="head")(x))


def dense_model(inputs=6, hidden=5, outputs=4, seed=0):
    """Two dense layers."""
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [
            keras.Input((inputs,)),
            keras.layers.Dense(hidden, activation="tanh", name="hidden"),
            keras.layers.Dense(outputs, name="head"),
        ]
    )


def batch_for(model, size=4, seed=0):
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(size, *model.input_shape[1:]))
    y = generator.normal(size=(size, *model.output_shape[1:]))
    return {"x": tf.constant(x, tf.float32), "y": tf.constant(y, tf.float32)}


def losses_of(model):
    return lambda batch: tf.reduce_sum(tf.square(model(batch["x"]) - batch["y"]), -1)


def axes_of(path, shape):
    """Axes of a kernel that are inputs and outputs."""
    for part, axes in AXES.items():
        if part in path:
            return axes
    last = len(shape) - 1
    return tuple(range(last)), (last,)


def parameter(value, input_units=None, name="kernel", view=None):
    """A kernel that belongs to no model."""
    variable = keras.Variable(np.asarray(value, np.float32), name=name)
    shape = tuple(variable.shape)
    return Parameter(variable, "kernel", view or MatrixView.of(shape, input_units), False)


def space_of(optimizer, model, seed=0):
    """The release space of a run that starts now, with public random numbers from `seed`."""
    optimizer.build(model.trainable_variables)
    context = optimizer.release_context(describe_parameters(model), NoiseGenerator(seed).normal)
    return optimizer.release_space(context)


def carriers_of(subspace):
    """Carriers by position, of RGP's space or of LSG's, which masks that one."""
    return subspace[0] if isinstance(subspace, tuple) else subspace


def private_gradients(
    optimizer,
    model,
    batch,
    *,
    space=None,
    seed=0,
    presence=None,
    noise_seed=1,
    microbatch_size=None,
):
    """The private sums of one step; divided by an expected batch size of 1."""
    space = space or space_of(optimizer, model, seed)
    multiplier = optimizer.noise_multiplier
    engine = PrivateGradients(
        model=model,
        space=space,
        mechanism=GaussianMechanism(optimizer.l2_norm_clip, multiplier, len(space.shapes)),
        noise=NoiseGenerator(noise_seed),
        expected_batch_size=1.0,
        gradient_method=optimizer.gradient_method,
        part_rows=microbatch_size,
        steps=tf.Variable(0, dtype=tf.int64),
    )
    losses = losses_of(model)
    presence = tf.ones([batch["x"].shape[0]]) if presence is None else tf.constant(presence)
    return engine.private_gradients(lambda part: (losses(part), ()), batch, presence)
