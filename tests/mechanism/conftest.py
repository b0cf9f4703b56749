"""Hostile per-example gradients and their exact values, for the tests of the mechanism."""

import numpy as np
import pytest
import tensorflow as tf

from tf_lowrank_dp.per_example.lookup import Lookup
from tf_lowrank_dp.per_example.materialized import Materialized
from tf_lowrank_dp.per_example.outer_product import OuterProduct

# Outer products with few features are formed; what is clipped then are the matrices held.
SHAPES = {
    "materialized": (5, 3),
    "outer_product": (12, 9),
    "centred_outer_product": (12, 9),
    "formed_outer_product": (6, 4),
    "lookup": (4, 3),
}
POSITIONS = 4

# What a record may hold; each function takes (generator, shape) and returns float64 values.
FILLS = {
    "normal": lambda g, shape: g.normal(size=shape),
    "zero": lambda g, shape: np.zeros(shape),
    "huge": lambda g, shape: g.normal(size=shape) * 1e17,
    "overflowing": lambda g, shape: g.normal(size=shape) * 1e30,
    "tiny": lambda g, shape: g.normal(size=shape) * 1e-17,
    "denormal": lambda g, shape: g.normal(size=shape) * 1e-41,
    "aligned": lambda g, shape: np.ones(shape) * 1e3,
    "one coordinate": lambda g, shape: _one_coordinate(shape, 1e6),
    "mixed scales": lambda g, shape: g.normal(size=shape) * 10.0 ** g.integers(-8, 8, shape),
    "nan": lambda g, shape: _one_coordinate(shape, np.nan),
    "infinity": lambda g, shape: _one_coordinate(shape, -np.inf),
    "cancelling": lambda g, shape: _cancelling(g, shape),
}
FINITE_FILLS = sorted(set(FILLS) - {"nan", "infinity"})


def _one_coordinate(shape, value):
    values = np.zeros(shape)
    values.flat[0] = value
    return values


def _cancelling(generator, shape):
    """Positions that cancel in pairs, up to a part in a million."""
    values = generator.normal(size=shape) * 1e6
    values[1::2] = -values[: len(values) // 2 * 2 : 2][: len(values[1::2])]
    return values * (1.0 + 1e-6 * generator.normal(size=shape))


class Records:
    """Records of one variable: the lazy gradient and its float64 value, from the same numbers."""

    def __init__(self, kind, fills, seed):
        self.kind = kind
        generator = np.random.default_rng(seed)
        if kind == "materialized":
            self.values = _rows(fills, generator, SHAPES[kind])
        else:
            features = SHAPES[kind]
            self.d = _rows(fills, generator, (POSITIONS, features[1]))
            if kind.endswith("outer_product"):
                x = generator.normal(size=(len(fills), 1, features[0])) * 1e2
                equal = np.repeat(x, POSITIONS, axis=1)  # equal inputs let positions cancel
                self.x = equal.astype(np.float32)
                # The first record's, whose gradient is 0 then, or another.
                centre = (
                    self.x[0, 0]
                    if seed % 2 and len(fills)
                    else generator.normal(size=features[0]) * 1e2
                )
                self.centre = centre.astype(np.float32)[:, None]
            else:
                self.ids = generator.integers(0, 2, (len(fills), POSITIONS)).astype(np.int32)

    def lazy(self):
        if self.kind == "materialized":
            return Materialized(tf.constant(self.values))
        if self.kind.endswith("outer_product"):
            product = OuterProduct(tf.constant(self.x), tf.constant(self.d))
            centred = self.kind == "centred_outer_product"
            return product.centred(tf.constant(self.centre)) if centred else product
        return Lookup(tf.constant(self.ids), tf.constant(self.d), SHAPES["lookup"][0])

    def exact(self):
        with np.errstate(all="ignore"):
            if self.kind == "materialized":
                return self.values.astype(np.float64)
            if self.kind == "formed_outer_product":
                return self.lazy().materialize().numpy().astype(np.float64)
            d = self.d.astype(np.float64)
            if self.kind.endswith("outer_product"):
                x = self.x.astype(np.float64)
                x = x - self.centre[:, 0] if self.kind == "centred_outer_product" else x
                return np.einsum("bti,bto->bio", x, d)
            return np.einsum("btv,bto->bvo", np.eye(SHAPES["lookup"][0])[self.ids], d)


def _rows(fills, generator, shape):
    with np.errstate(all="ignore"):
        rows = [FILLS[fill](generator, shape).astype(np.float32) for fill in fills]
    return np.stack(rows) if rows else np.zeros((0, *shape), np.float32)


def exact_norms(records):
    """Joint float64 norms `(b,)` over several variables."""
    return np.sqrt(sum((r.exact().reshape(len(r.exact()), -1) ** 2).sum(1) for r in records))


@pytest.fixture
def make_records():
    return Records


@pytest.fixture
def joint_norms():
    return exact_norms
