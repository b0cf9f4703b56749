"""The tensors in what a release space has chosen for a step."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf


def map_leaves(function: Callable[[tf.Tensor], tf.Tensor], structure: Any) -> Any:
    """The same structure, with what a function makes of each tensor, in an order that is fixed.

    Args:
        function: of a tensor.
        structure: None, a tensor, or lists, tuples, dicts and dataclasses of structures, or objects
            whose class is called with their `tensors`, as GEP's bases.

    Raises:
        TypeError: there is something else in it.

    Example:

    >>> map_leaves(lambda t: t + 1, {"a": [tf.constant(1)], "b": None})["a"][0].numpy()
    np.int32(2)
    """

    def mapped(part: Any) -> Any:
        return map_leaves(function, part)

    if structure is None:
        return None
    if tf.is_tensor(structure):
        return function(structure)
    if isinstance(structure, dict):
        return {key: mapped(part) for key, part in structure.items()}
    if isinstance(structure, tuple) and hasattr(structure, "_fields"):
        return type(structure)(*map(mapped, structure))
    if isinstance(structure, list | tuple):
        return type(structure)(map(mapped, structure))
    if dataclasses.is_dataclass(structure) and not isinstance(structure, type):
        fields = [field.name for field in dataclasses.fields(structure)]
        return type(structure)(**{name: mapped(getattr(structure, name)) for name in fields})
    if isinstance(getattr(structure, "tensors", None), list):
        return type(structure)(mapped(structure.tensors))
    raise TypeError(
        "Expected a subspace of tensors in lists, tuples, dicts, dataclasses, or objects that are "
        f"made of their `tensors`, which can be sent to other workers. Received: {structure!r}. "
        "Let refresh() of the release space return such a structure."
    )
