"""The gradient of a whole batch, as matrices: neither clipped nor noised, hence not private."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import keras
import numpy as np
import tensorflow as tf

from tf_lowrank_dp._keras.layers import seed_states
from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.gradient_methods.methods import METHODS
from tf_lowrank_dp.layers.parameters import describe_parameters
from tf_lowrank_dp.per_example.gradient import PerExampleGradient
from tf_lowrank_dp.per_example.parameter import Parameter
from tf_lowrank_dp.training.compiled_loss import CompiledLoss
from tf_lowrank_dp.training.validate_model import validate_model


def whole_batch(x: Nested, y: Nested = None, sample_weight: Nested = None) -> dict:
    """The arguments of `fit` as one batch of tensors; what is None is left out."""
    batch = {"x": x, "y": y, "sample_weight": sample_weight}
    return {
        key: tf.nest.map_structure(tf.convert_to_tensor, value)
        for key, value in batch.items()
        if value is not None
    }


def chosen_matrices(
    model: keras.Model, include: Sequence[str] | None = None
) -> dict[str, tuple[int, Parameter]]:
    """The matrices that are looked at: position among the trainable variables, and description.

    Args:
        model: a built model.
        include: parts of variable paths; the matrices that contain one of them are taken,
            embeddings as well.  None for all kernels.

    Returns:
        By variable path, in the model's order; a path that occurs again gets its position added.

    Raises:
        ValueError: nothing is left.
    """
    if isinstance(include, str):
        include = [include]
    parameters = describe_parameters(model)
    found: dict[str, tuple[int, Parameter]] = {}
    for index, parameter in enumerate(parameters):
        if include is None:
            wanted = parameter.role == "kernel"
        else:
            wanted = any(part in parameter.path for part in include)
        if wanted and parameter.view is not None:
            path = parameter.path
            found[f"{path} ({index})" if path in found else path] = index, parameter
    if not found:
        raise ValueError(
            "Expected `include` to name at least one trainable matrix, or None for all kernels. "
            f"Received: include={include!r}, among the matrices "
            f"{[p.path for p in parameters if p.view is not None]}. Correct it."
        )
    return found


def gradient_matrices(
    model: keras.Model, batch: dict, include: Sequence[str] | None = None
) -> dict[str, np.ndarray]:
    """The gradient of the mean loss of a batch, for each chosen matrix.

    The forward pass is that of training, dropout included; random numbers and metrics are left as
    they were, so that looking changes no training run.  Weight regularisers are left out, as they
    are before the noise.

    Not private: this is the plain gradient of `batch`.

    Args:
        model: built and compiled, with layers that `make_private` accepts; private or not.
        batch: see `whole_batch`.
        include: see `chosen_matrices`.

    Returns:
        By variable path, float32 `(m, n)`: input features in rows, output features in columns.
    """
    validate_model(model)
    chosen = chosen_matrices(model, include)
    size = int(tf.nest.flatten(batch)[0].shape[0])
    gradients = per_example_gradients(model, batch)
    weights = tf.fill([size], 1.0 / size)
    return {
        path: parameter.matrix_view.to_matrix(gradients[index].weighted_sum(weights)).numpy()
        for path, (index, parameter) in chosen.items()
    }


def per_example_gradients(model: keras.Model, batch: dict) -> Sequence[PerExampleGradient]:
    """Gradients of the compiled loss of each example, for each trainable variable; not private."""
    size = int(tf.nest.flatten(batch)[0].shape[0])
    with unchanged_random_state(model):
        return METHODS["auto"](model, CompiledLoss(model, float(size)), batch).gradients


@contextlib.contextmanager
def unchanged_random_state(model: keras.Model) -> Iterator[None]:
    """Afterwards the layers' random numbers, such as dropout masks, go on as if nothing was."""
    seeds = seed_states(model)
    states = [np.array(seed) for seed in seeds]
    try:
        yield
    finally:
        for seed, state in zip(seeds, states, strict=True):
            seed.assign(state)
