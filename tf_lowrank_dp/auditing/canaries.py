"""Examples that are planted in the training data, each by the toss of a coin."""

from __future__ import annotations

import dataclasses

import keras
import numpy as np

from tf_lowrank_dp import _validate
from tf_lowrank_dp._types import Nested


@dataclasses.dataclass(frozen=True)
class Canaries:
    """Candidates for the training data, and which of them a fair coin took.

    Attributes:
        x: features, nested arrays `(m, ...)`.
        y: targets, nested arrays `(m, ...)`, or None.
        included: bool `(m,)`.

    Example:

    >>> import numpy as np
    >>> canaries = Canaries.draw(np.eye(4), np.zeros(4), seed=0)
    >>> x, y = canaries.insert(np.ones((10, 4)), np.ones(10))
    >>> len(x) - 10 == int(canaries.included.sum())
    True
    """

    x: Nested
    y: Nested
    included: np.ndarray

    @classmethod
    def draw(cls, x: Nested, y: Nested = None, *, seed: int | None = None) -> Canaries:
        """Takes each of `m` examples with probability 1/2, independently.

        Args:
            x: features, nested arrays `(m, ...)`. Choose examples that the model would not
                learn from others: mislabelled, out of distribution, or with gradients in
                directions of their own.
            y: targets, nested arrays `(m, ...)`, or None.
            seed: makes the coins reproducible; None takes them from the operating system. Nothing
                that the scores are computed from may depend on it.

        Raises:
            ValueError: `x` and `y` have different lengths, or none.
        """
        if seed is not None:
            _validate.integer_at_least(0, seed=seed)
        lengths = {len(array) for array in keras.tree.flatten((x, y)) if array is not None}
        if len(lengths) != 1 or lengths == {0}:
            raise ValueError(
                "Expected at least one canary, and x and y of the same length. Received: lengths "
                f"{sorted(lengths)}. Pass arrays (m, ...)."
            )
        coins = np.random.default_rng(seed).integers(0, 2, lengths.pop())
        return cls(x, y, coins.astype(bool))

    def insert(self, x: Nested, y: Nested = None) -> tuple:
        """Training data with the included canaries appended.

        The number of examples tells how many canaries are in; the library counts it as public.

        Args:
            x: training data, structured like the canaries.
            y: their targets.

        Returns:
            `(x, y)` to train on; `y` is None if it was None.
        """
        included = self.included

        def joined(data: Nested, canaries: Nested) -> Nested:
            return np.concatenate([data, np.asarray(canaries)[included]])

        return keras.tree.map_structure(joined, x, self.x), (
            None if y is None else keras.tree.map_structure(joined, y, self.y)
        )
