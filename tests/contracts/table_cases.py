"""Rows for tables that project as well, and for layers called on what all examples share."""

import keras

from tests.contracts.case import LayerCase as _case

L = keras.layers


def _there_and_back(rows, width, adapted=False, calls=1, **kwargs):
    """Looks up ids, mixes the positions, and projects back to logits."""

    def call(ids):
        table = L.ReversibleEmbedding(rows, width, embeddings_initializer="normal", **kwargs)
        table.build(ids.shape)
        if adapted:
            table.enable_lora(2, b_initializer="glorot_normal")
        x = sum(table(keras.ops.flip(ids, 1) if n else ids) for n in range(calls))
        x = keras.ops.tanh(40.0 * x + keras.ops.cumsum(x, 1))
        return sum(table(x * (n + 1.0), reverse=True) for n in range(calls))

    return lambda: call


def _positions(x):
    """Numbers of the positions, looked up in a table, for all examples at once."""
    numbers = keras.ops.arange(x.shape[1])[None]
    return x + L.Embedding(9, x.shape[2])(numbers)


def _constants(x):
    """A layer on a constant that all examples share."""
    wave = keras.ops.sin(keras.ops.reshape(keras.ops.arange(12, dtype="float32"), (1, 6, 2)))
    return x * L.LayerNormalization()(L.Dense(x.shape[2], activation="tanh")(wave))


TABLE_CASES = [
    _case("table_untied", _there_and_back(11, 4, tie_weights=False), (6,), kind="ids"),
    _case("table_tied", _there_and_back(11, 4), (6,), kind="ids"),
    _case("table_tied_wide", _there_and_back(60, 50), (6,), kind="ids"),
    _case("table_tied_twice", _there_and_back(60, 50, calls=2), (6,), kind="ids"),
    _case("table_tied_soft_cap", _there_and_back(11, 4, logit_soft_cap=2.0), (6,), kind="ids"),
    _case("table_tied_adapter", _there_and_back(60, 50, adapted=True), (6,), kind="ids"),
    _case("shared_positions", lambda: _positions, (6, 5)),
    _case("shared_constants", lambda: _constants, (6, 5)),
]
