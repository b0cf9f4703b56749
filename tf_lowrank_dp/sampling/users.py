"""Poisson sampling of users: a step includes each with one probability, and some of its rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tf_lowrank_dp import _validate
from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.accounting.sampling import Unit
from tf_lowrank_dp.sampling import batch as batch_lib
from tf_lowrank_dp.sampling import padding, rows
from tf_lowrank_dp.sampling.draw import poisson_draw
from tf_lowrank_dp.sampling.poisson import PoissonSampler


class UserSampler(PoissonSampler):
    """Draws users instead of rows; of each that is drawn, at most `rows_per_unit` rows.

    Formal guarantees:
        * Inclusions of users are independent, with the rate that `sampling` states.
        * A user is in a batch at most once, whatever rows it has; of a user with more than
          `rows_per_unit` rows, that many are drawn anew at each step, all as likely.
        * A unit's weights are above 0 for different rows of its user and add up to 1.

    Args:
        x, y, sample_weight, class_weight, seed: see `PoissonSampler`; arrays.
        unit_ids: integers `(n,)`: which user each row is of.
        rows_per_unit: largest number of rows of a user in a step; above `n` it is taken as `n`.
        batch_size: expected number of users of a step.

    Batches have leaves `(u, rows_per_unit, ...)`, `"presence"` `(u,)` and `"row_weight"`
    `(u, rows_per_unit)`, see `sampling.batch`.

    Example: three rows of user 7, and one of user 5 beside a copy that does not count.

    >>> sampler = UserSampler(np.arange(4.0), unit_ids=[7, 7, 5, 7], rows_per_unit=3, batch_size=2,
    ...                       steps=1)
    >>> [batch] = sampler
    >>> batch["x"][0].tolist(), batch["row_weight"][0].tolist()
    ([2.0, 2.0, 2.0], [1.0, 0.0, 0.0])
    """

    _unit: Unit = "user"

    def __init__(
        self,
        x: Any,
        y: Any = None,
        *,
        unit_ids: Any,
        rows_per_unit: int,
        batch_size: int,
        steps: int | None = None,
        sample_weight: Any = None,
        class_weight: dict[int, float] | None = None,
        seed: int | None = None,
    ):
        self._ids = _integers(unit_ids)
        most = _validate.integer_at_least(1, rows_per_unit=rows_per_unit)
        self._rows_per_unit = min(most, max(1, len(self._ids)))
        _, users, counts = np.unique(self._ids, return_inverse=True, return_counts=True)
        self._ordered = np.argsort(users, kind="stable")  # the rows of each user in a row
        self._starts, self._counts = np.cumsum(counts) - counts, counts
        super().__init__(
            x,
            y,
            batch_size=batch_size,
            steps=steps,
            sample_weight=sample_weight,
            class_weight=class_weight,
            seed=seed,
        )

    def _draw_from(
        self, num_examples: int, batch_size: int, pad_to_multiple: int | None = None
    ) -> None:
        """See `PoissonSampler`; users instead of rows."""
        if len(self._ids) != num_examples:
            raise ValueError(
                f"Expected one number for each of {num_examples} rows in unit_ids. Received: "
                f"{len(self._ids)}. Pass those of the rows of x."
            )
        super()._draw_from(len(self._counts), batch_size, pad_to_multiple)

    @property
    def rows_per_unit(self) -> int:
        """Largest number of rows of a user in a step."""
        return self._rows_per_unit

    @property
    def _spec(self) -> dict:
        rest = super()._spec
        presence = rest.pop(batch_lib.PRESENCE)
        rest[batch_lib.ROW_WEIGHT] = tf.TensorSpec((None,), tf.float32)
        k = self._rows_per_unit
        spec = tf.nest.map_structure(
            lambda s: tf.TensorSpec((None, k, *s.shape[1:]), s.dtype), rest
        )
        return {**spec, batch_lib.PRESENCE: presence}

    def _without_length(self) -> tf.data.Dataset:
        return self._made_by_python()

    def _batches(self) -> Iterator[dict]:
        for generator in self._generators():
            users = poisson_draw(generator, self._num_examples, self.sampling_rate)
            yield self._batch_of(users, generator)

    def _batch_of(self, users: np.ndarray, generator: np.random.Generator) -> dict:
        """The padded logical batch of some users."""
        k = self._rows_per_unit
        counts = self._counts[users]
        places = np.where(np.arange(k) < counts[:, None], np.arange(k), 0)
        for unit in np.flatnonzero(counts > k):
            places[unit] = generator.choice(counts[unit], k, replace=False)
        chosen = self._ordered[self._starts[users][:, None] + places]

        def units(data: Any) -> np.ndarray:
            taken = rows.take_rows(data, chosen.reshape(-1))
            return taken.reshape(len(users), k, *taken.shape[1:])

        batch: Nested = tf.nest.map_structure(units, self._data)
        counted = np.minimum(counts, k)[:, None]
        weights = np.where(np.arange(k) < counted, 1.0 / np.maximum(counted, 1), 0.0)
        batch[batch_lib.ROW_WEIGHT] = weights.astype(np.float32)
        batch[batch_lib.PRESENCE] = np.ones(len(users), np.float32)
        return padding.pad_rows(batch, self._padded_size(len(users)))


def _integers(unit_ids: Any) -> np.ndarray:
    if np.ma.is_masked(unit_ids):
        raise ValueError(
            "Expected the user of each row in unit_ids. Received: a masked array. Leave out rows "
            "of unknown users, or give each of them a number of its own."
        )
    ids = np.asarray(unit_ids)
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise ValueError(
            "Expected integers (n,) as unit_ids, one for each row. Received: an array of shape "
            f"{ids.shape} and dtype {ids.dtype}. Number the users, for example by "
            "np.unique(names, return_inverse=True)[1]."
        )
    return ids
