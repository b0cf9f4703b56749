"""The logical batch: the record that our datasets yield and the private train step consumes.

A logical batch is one draw of the sampler, padded to a convenient size. It is a plain Python dict,
because a plain dict passes through `tf.data`, `tf.function` and Keras unchanged:

| key | value | present |
|---|---|---|
| `"x"` | structure of arrays `(b, ...)`: the model's inputs | always |
| `"y"` | structure of arrays `(b, ...)`: the targets | if there are targets |
| `"sample_weight"` | structure of arrays `(b, ...)` | if there are weights |
| `"presence"` | float32 `(b,)`: 1.0 for an example, 0.0 for padding | always |
| `"draw"` | int64 `(6,)`: which draw it is, see below | in batches of a sampler |

A draw is the number of examples and the expected size of a batch, which say what it is drawn from;
a number of the process, of the iteration in it and of the draw in that; and the number of its rows.

A batch of units has `(b, k, ...)` instead of `(b, ...)`, for `b` units of privacy of `k` rows each,
and `"row_weight"`, float32 `(b, k)`: of each row in the unit's mean (`per_example/units.py`).
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

X = "x"
Y = "y"
SAMPLE_WEIGHT = "sample_weight"
PRESENCE = "presence"
DRAW = "draw"
ROW_WEIGHT = "row_weight"


def make_batch(x: Any, y: Any = None, sample_weight: Any = None, *, presence: Any) -> dict:
    """Builds a logical batch; targets and weights that are `None` get no key.

    Args:
        x: structure of arrays or tensors `(b, ...)`.
        y: the same for the targets, or `None`.
        sample_weight: the same for the weights, or `None`.
        presence: float32 `(b,)`: 1.0 for an example, 0.0 for padding.

    Returns:
        The dict described at the top of this module.

    Example:

    >>> import numpy as np
    >>> sorted(make_batch(np.zeros((2, 3)), presence=np.ones(2, "float32")))
    ['presence', 'x']
    """
    batch = {X: x, PRESENCE: presence}
    if y is not None:
        batch[Y] = y
    if sample_weight is not None:
        batch[SAMPLE_WEIGHT] = sample_weight
    return batch


def unpack_batch(batch: dict) -> tuple[Any, Any, Any, Any]:
    """`(x, y, sample_weight, presence)`, with `None` for an absent key.

    Formal guarantees:
        * Presence is a channel of its own: it is never derived from `sample_weight`, so an example
          whose weight is zero is still an example.

    Args:
        batch: a logical batch.

    Returns:
        Four values with the structures, shapes and dtypes of the batch.

    Raises:
        ValueError: `batch` is not a logical batch.

    Example:

    >>> x, y, sample_weight, presence = unpack_batch({"x": [1.0], "presence": [1.0]})
    >>> y is None
    True
    """
    if not is_batch(batch):
        received = sorted(batch) if isinstance(batch, dict) else type(batch).__name__
        raise ValueError(
            "Expected a logical batch: a dict with the keys 'x' and 'presence' (and possibly 'y' "
            f"and 'sample_weight'). Received: {received}. Use `PoissonSampler` or "
            "`declared_dataset` to make logical batches."
        )
    return batch[X], batch.get(Y), batch.get(SAMPLE_WEIGHT), batch[PRESENCE]


def is_batch(element: Any) -> bool:
    """Whether `element` (or an element spec) has the keys of a logical batch.

    Example:

    >>> is_batch({"x": 0, "presence": 0}), is_batch({"x": 0, "ids": 0})
    (True, False)
    """
    if not isinstance(element, dict):
        return False
    keys = set(element)
    return {X, PRESENCE} <= keys <= {X, Y, SAMPLE_WEIGHT, PRESENCE, DRAW}


def num_rows(batch: dict) -> int | tf.Tensor:
    """The number of rows of a logical batch, padding included.

    Args:
        batch: a logical batch of numpy arrays or tensors.

    Returns:
        A Python int where the size is known, else an int32 scalar tensor.

    Example:

    >>> import numpy as np
    >>> num_rows({"x": np.zeros((4, 2)), "presence": np.array([1, 1, 1, 0], "float32")})
    4
    """
    presence = batch[PRESENCE]
    size = presence.shape[0]
    return tf.shape(presence)[0] if size is None else int(size)
