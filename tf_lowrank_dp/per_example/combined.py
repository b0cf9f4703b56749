"""The per-example gradient of a variable that is used at several sites."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import tensorflow as tf

from tf_lowrank_dp.per_example.centrable import CentrableGradient, centrable
from tf_lowrank_dp.per_example.gradient import PerExampleGradient
from tf_lowrank_dp.per_example.lookup import Lookup
from tf_lowrank_dp.per_example.materialized import Materialized
from tf_lowrank_dp.per_example.outer_product import OuterProduct
from tf_lowrank_dp.per_example.parameter import MatrixView
from tf_lowrank_dp.per_example.tied import TiedGradient


def combine(gradients: Sequence[PerExampleGradient]) -> PerExampleGradient:
    """The per-example gradient of a variable used at several sites: exactly their sum.

    The norm of a sum is not the sum of norms, so outer products are joined along their positions,
    lookups as well, and everything else is added up materialised.
    """
    if len(gradients) == 1:
        return gradients[0]
    lookups = [g for g in gradients if isinstance(g, Lookup)]
    products = [g for g in gradients if isinstance(g, OuterProduct)]
    if len(lookups) + len(products) < len(gradients):
        return _Sum(gradients)
    if not lookups:
        return OuterProduct.joined(products)
    if not products:
        return Lookup.joined(lookups)
    return TiedGradient(Lookup.joined(lookups), OuterProduct.joined(products))


class _Sum(CentrableGradient):
    """The sum of gradients of different kinds; small images of it are summed as small tensors."""

    def __init__(self, gradients: Sequence[PerExampleGradient]):
        self._gradients = list(gradients)

    @functools.cached_property
    def _total(self) -> Materialized:
        return Materialized(tf.add_n([g.materialize() for g in self._gradients]))

    def squared_norms(self) -> tf.Tensor:
        return self._total.squared_norms()

    def squared_norm_bounds(self) -> tf.Tensor:
        return self._total.squared_norm_bounds()

    def weighted_sum(self, weights: tf.Tensor) -> tf.Tensor:
        return self._total.weighted_sum(weights)

    def materialize(self) -> tf.Tensor:
        return self._total.materialize()

    def right(self, r: tf.Tensor, view: MatrixView) -> PerExampleGradient:
        return combine([g.right(r, view) for g in self._gradients])

    def left(self, l: tf.Tensor, view: MatrixView) -> PerExampleGradient:  # noqa: E741
        return combine([g.left(l, view) for g in self._gradients])

    def masked(self, mask: tf.Tensor) -> PerExampleGradient:
        return combine([g.masked(mask) for g in self._gradients])

    def centred(self, centre: tf.Tensor) -> CentrableGradient:
        return _Sum([centrable(g).centred(centre) for g in self._gradients])

    def mean_inputs(self) -> tf.Tensor:
        means = [centrable(g).mean_inputs() for g in self._gradients]
        return tf.add_n(means) / len(means)
