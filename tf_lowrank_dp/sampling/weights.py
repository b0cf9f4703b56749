"""Sample weights and class weights, with the meaning they have in Keras."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_lowrank_dp.sampling import rows

_NO_CLASS = -(2**31)


def resolve_sample_weight(y: Any, sample_weight: Any, class_weight: Any) -> Any:
    """Turns the `sample_weight` and `class_weight` of `fit` into one structure of weights.

    Args:
        y: structure of target arrays (the output of `rows.to_rows`), or `None`.
        sample_weight: structure of weight arrays, or `None`. One array of weights per example is
            given to each of several outputs, as Keras does.
        class_weight: dict from class index to weight, or `None`.

    Returns:
        Structure of floating arrays like `y`, or `None`.

    Raises:
        ValueError: both kinds of weights are given, the structures differ, or `class_weight` is
            used without single-output class labels.

    Example:

    >>> import numpy as np
    >>> resolve_sample_weight(np.array([0, 1, 1]), None, {1: 3.0}).tolist()
    [1.0, 3.0, 3.0]
    """
    if class_weight is not None:
        if sample_weight is not None:
            raise ValueError(
                "Expected `sample_weight` or `class_weight`. Received: both. Multiply the class "
                "weights into `sample_weight` and leave out `class_weight`."
            )
        return class_weights_to_sample_weights(y, class_weight)
    if sample_weight is None:
        return None
    if not isinstance(y, tuple | dict):
        if isinstance(sample_weight, tuple | dict):
            raise ValueError(
                "Expected one array of sample weights for a single output. "
                f"Received: a {type(sample_weight).__name__}. Pass one array."
            )
        return _as_float(sample_weight)
    if not isinstance(sample_weight, tuple | dict):
        if sample_weight.ndim > 2 or sample_weight.shape[1:] not in ((), (1,)):
            raise ValueError(
                "Expected one weight per example, shape (n,), when several outputs share one array "
                f"of sample weights. Received: shape {sample_weight.shape}. Pass one array per "
                "output, in the structure of `y`."
            )
        weight = _as_float(sample_weight)
        return tf.nest.map_structure(lambda _: weight, y)
    try:
        tf.nest.assert_same_structure(y, sample_weight)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "Expected sample weights with one array per output, in the structure of `y`. "
            f"Received another structure: {error}"
        ) from error
    return tf.nest.map_structure(_as_float, sample_weight)


def _as_float(weight: np.ndarray) -> np.ndarray:
    if weight.dtype.kind in "OUS":
        raise ValueError(
            "Expected numbers as sample weights. "
            f"Received: dtype {weight.dtype}. Pass a floating array."
        )
    if weight.dtype.kind in "iub":
        return weight.astype(rows.floatx_type())
    return weight


def class_weights_to_sample_weights(y: Any, class_weight: Mapping[int, float]) -> np.ndarray:
    """The weight of every example's class; classes that are not listed weigh 1.

    So do rows without a class, such as 0.5 or NaN: what one row holds changes no other's weight.

    Args:
        y: integer labels `(n,)` or `(n, 1)` (floating dtypes with integer values too), or one-hot
            labels `(n, classes)`.
        class_weight: dict from class index to weight.

    Returns:
        Array `(n,)` of dtype `keras.config.floatx()`.

    Raises:
        ValueError: `y` is nested, missing, or holds no class labels in any row.

    Example:

    >>> import numpy as np
    >>> class_weights_to_sample_weights(np.eye(3), {0: 0.5, 2: 2.0}).tolist()
    [0.5, 1.0, 2.0]
    """
    if not isinstance(class_weight, Mapping):
        raise ValueError(
            "Expected `class_weight` to be a dict from class index to weight. "
            f"Received: {type(class_weight).__name__}."
        )
    classes, index = np.unique(_class_labels(y), return_inverse=True)
    weights = np.array([class_weight.get(int(c), 1.0) for c in classes])
    return weights.astype(rows.floatx_type())[index.reshape(-1)]


def with_class_weight(parts: dict, class_weight: Mapping, axes: int) -> dict:
    """Adds `"sample_weight"` to the parts `"x"`, `"y"` of a batch, or of a record, in a graph.

    Args:
        parts: nested tensors; `y` with integer labels, `(b,)` or `(b, 1)`, or one-hot ones
            `(b, classes)`.
        class_weight: dict from class index to weight; others weigh 1.
        axes: 1 for a batch, whose first axis is the example; 0 for a record.

    Raises:
        ValueError: there are weights already, or no targets of a single output.
    """
    y: tf.Tensor = parts.get("y")
    if "sample_weight" in parts or not tf.is_tensor(y):
        received = "weights in the data as well" if "sample_weight" in parts else "other targets"
        raise ValueError(
            "Expected (x, y) with the targets of a single output with `class_weight`. Received: "
            f"{received}. Put weights into the data instead: (x, y, sample_weight)."
        )
    if y.shape.rank == axes + 1:
        y = y[..., 0] if y.shape[-1] == 1 else tf.argmax(y, -1)
    labels = tf.cast(y, tf.int64)
    classes = tf.constant(list(class_weight), labels.dtype)
    added = tf.constant(list(class_weight.values()), keras.config.floatx()) - 1.0
    matches = tf.cast(labels[..., None] == classes, added.dtype)
    return {**parts, "sample_weight": 1.0 + tf.reduce_sum(matches * added, -1)}


def _class_labels(y: Any) -> np.ndarray:
    """Integer labels `(n,)` from integer or one-hot targets."""
    remedy = "Pass `sample_weight` instead of `class_weight`."
    if not isinstance(y, np.ndarray):
        received = "no targets" if y is None else f"a {type(y).__name__} of outputs"
        raise ValueError(
            f"Expected the targets of a single output with `class_weight`. Received: {received}. "
            f"{remedy}"
        )
    if y.dtype.kind in "OUSc" or y.ndim > 2:
        raise ValueError(
            "Expected integer labels (n,) or one-hot labels (n, classes) with `class_weight`. "
            f"Received: shape {y.shape}, dtype {y.dtype}. {remedy}"
        )
    if y.ndim == 2 and y.shape[1] != 1:
        known = (np.count_nonzero(y == 1, axis=1) == 1) & (np.count_nonzero(y, axis=1) == 1)
        labels = np.argmax(y, axis=1)
    else:
        labels = y.reshape(-1)
        known = np.abs(labels.astype(np.float64)) < -_NO_CLASS
        known &= labels == np.round(labels.astype(np.float64))
    if len(y) and not known.any():
        raise ValueError(
            "Expected integer or one-hot labels with `class_weight`. Received: targets that are "
            f"no such labels in any row. {remedy}"
        )
    return np.where(known, labels, _NO_CLASS).astype(np.int64)
