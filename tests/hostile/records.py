"""Hostile records: what a data set of a fixed number of them may hold."""

import numpy as np
from hypothesis import strategies as st

from tests.hostile.models import CLASSES, TOKENS, VOCABULARY

RECORDS = 8

# What numbers may be; functions of (generator, shape).
FILLS = {
    "normal": lambda g, shape: g.normal(size=shape),
    "zero": lambda g, shape: np.zeros(shape),
    "huge": lambda g, shape: g.normal(size=shape) * 1e12,
    "overflowing": lambda g, shape: g.normal(size=shape) * 1e30,
    "tiny": lambda g, shape: g.normal(size=shape) * 1e-15,
    "denormal": lambda g, shape: g.normal(size=shape) * 1e-41,
    "mixed scales": lambda g, shape: g.normal(size=shape) * 10.0 ** g.integers(-20, 9, shape),
    "one entry": lambda g, shape: _with_entry(g, np.zeros(shape), 1e6),
    "nan": lambda g, shape: _with_entry(g, g.normal(size=shape), np.nan),
    "infinity": lambda g, shape: _with_entry(g, g.normal(size=shape), -np.inf),
    "equal positions": lambda g, shape: _equal(g, shape, 1.0),
    "cancelling": lambda g, shape: _cancelling(g, shape),
}
# The same along and across public directions: functions of (generator, shape, rows, one of them).
DIRECTED = {
    "inside": lambda g, shape, rows, row: _along(g, shape, row),
    "nearly inside": lambda g, shape, rows, row: (
        _along(g, shape, row) * (1.0 + 10.0 ** g.uniform(-7, -1) * g.normal(size=shape))
    ),
    "outside": lambda g, shape, rows, row: _outside(g.normal(size=shape), rows),
}
WEIGHTS = (1.0, 1.0, 1.0, 0.0, -3.0, 1e-20, 1e5, 1e20, np.nan, np.inf)
# What the ids of a record may be; 0 is padding.
IDS = {
    "no padding": lambda g, shape: g.integers(1, VOCABULARY, shape),
    "padding": lambda g, shape: g.integers(1, VOCABULARY, shape) * (np.arange(shape[0]) < 2),
    "all padding": lambda g, shape: np.zeros(shape),
    "one id": lambda g, shape: np.full(shape, g.integers(1, VOCABULARY)),
    "holes": lambda g, shape: g.integers(0, 2, shape) * (VOCABULARY - 1),
}


def kinds(kind):
    """A strategy for what `RECORDS` records hold; True duplicates the first record."""
    weights, copies = st.sampled_from(WEIGHTS), st.sampled_from([False] * 7 + [True])
    if kind == TOKENS:
        record = st.tuples(st.sampled_from(sorted(IDS)), st.none(), weights, copies)
    else:
        fills = st.sampled_from(sorted(FILLS | DIRECTED))
        record = st.tuples(fills, fills, weights, copies)
    return st.lists(record, min_size=RECORDS, max_size=RECORDS)


def make_batch(kind, chosen, seed, x_shape, y_shape, directions):
    """Arrays `x`, `y` and `sample_weight` with a row for each record.

    Args:
        kind: NUMBERS or TOKENS.
        chosen: an example of `kinds`.
        seed: of the numbers.
        x_shape, y_shape: of one record.
        directions: rows `(k, i)` and `(k, o)` that records may lie along or across.
    """
    generator = np.random.default_rng(seed)
    records = []
    with np.errstate(all="ignore"):
        for x_kind, y_kind, weight, copy in chosen:
            if copy and records:
                records.append(records[0])
            elif kind == TOKENS:
                ids = IDS[x_kind](generator, x_shape).astype(np.int32)
                label = np.int32(generator.integers(CLASSES))
                records.append((ids, label, np.float32(weight)))
            else:
                at = generator.integers(min(map(len, directions)))
                x = _filled(generator, x_kind, x_shape, directions[0], at)
                y = _filled(generator, y_kind, y_shape, directions[1], at)
                scale = 10.0 ** generator.integers(-3, 9)
                records.append((np.float32(x), np.float32(y * scale), np.float32(weight)))
    x, y, weights = zip(*records, strict=True)
    return {"x": np.stack(x), "y": np.stack(y), "sample_weight": np.stack(weights)}


def _filled(generator, fill, shape, rows, at):
    if fill in DIRECTED:
        return DIRECTED[fill](generator, shape, rows, rows[at])
    return FILLS[fill](generator, shape)


def _with_entry(generator, values, value):
    values.flat[generator.integers(values.size)] = value
    return values


def _equal(generator, shape, scale):
    """All positions hold the same numbers."""
    return np.broadcast_to(generator.normal(size=shape[-1]) * scale, shape)


def _cancelling(generator, shape):
    """Positions that cancel in pairs, up to a part in a million."""
    values = np.array(_equal(generator, shape, 1e6)).reshape(-1, shape[-1])
    values[1::2] *= -1.0
    return values.reshape(shape) * (1.0 + 1e-6 * generator.normal(size=shape))


def _along(generator, shape, row):
    """One direction at every position, with factors of their own if it is not a whole record."""
    if row.size == np.prod(shape):
        return row.reshape(shape)
    return generator.normal(size=(*shape[:-1], 1)) * row


def _outside(values, rows):
    """The part of each position, or of the whole record, that is orthogonal to all rows."""
    flat = values.reshape(-1, rows.shape[1])
    return (flat - flat @ np.linalg.pinv(rows) @ rows).reshape(values.shape)
