"""Rows for recurrent layers: cells, options, masks, states, dropout."""

import keras

from tests.contracts.case import LayerCase as _case
from tests.contracts.case import simple as _simple
from tests.contracts.case import twice

L = keras.layers
LONG, SHORT = (10, 5), (4, 5)


class Doubling(L.Layer):
    """A user's cell: goes through the fallback, with the loop around it."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = self.state_size = units

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], self.units), name="kernel")

    def call(self, x, states):
        h = keras.ops.tanh(keras.ops.matmul(x, self.kernel) + 2.0 * states[0])
        return h, [h]


def _stacked_cells():
    return L.RNN([L.LSTMCell(3), L.GRUCell(2)])


def _recurrent(layer_class, *args, bias=0.3, **kwargs):
    """A recurrent layer whose biases are not zero."""
    initializer = keras.initializers.RandomNormal(stddev=bias)
    return _simple(layer_class, *args, bias_initializer=initializer, **kwargs)


def _called(make, states=0, masked=False):
    """Passes a mask, or initial states that depend on weights; the output has all final states.

    The mask hides some positions of each example, also the first or last ones.
    """

    def call(x):
        mask = keras.ops.sin(17.0 * x[..., 0]) > -0.3 if masked else None
        initial = [L.Dense(3, activation="tanh")(x[:, n]) for n in range(states)] or None
        outputs = make()(x, initial_state=initial, mask=mask)
        if not isinstance(outputs, (list, tuple)):
            return outputs
        return keras.ops.concatenate([L.Flatten()(output) for output in outputs], -1)

    return lambda: call


def _fixed_dropout(make):
    """Dropout whose masks follow from the inputs, so that the oracle sees the same ones."""

    def mask(like, seed):
        numbers = keras.ops.arange(1, like.shape[-1] + 1, dtype=like.dtype)
        return keras.ops.where(keras.ops.sin(9.0 * numbers + seed + 40.0 * like) > -0.4, 1.5, 0.0)

    def build():
        layer = make()
        count = getattr(layer.cell, "dropout_mask_count", None)
        layer.cell._create_dropout_mask = lambda like, rate: (
            mask(like, 0.0) if count is None else [mask(like, float(n)) for n in range(count)]
        )
        return layer

    return build


def _lstm_and_gru():
    options = {"return_sequences": True, "bias_initializer": "ones"}
    return keras.Sequential([L.LSTM(5, **options), L.GRU(5, reset_after=False, **options)])


RECURRENT_CASES = [
    _case("fallback_rnn_cell", lambda: L.RNN(Doubling(3)), (3, 5), fallback=True),
    _case("fallback_rnn_stacked_cells", _stacked_cells, (3, 5), fallback=True),
    _case("rnn_simple", _recurrent(L.SimpleRNN, 3), LONG),
    _case("rnn_simple_relu", _recurrent(L.SimpleRNN, 3, activation="relu", unroll=True), LONG),
    _case("rnn_simple_linear", _recurrent(L.SimpleRNN, 3, activation=None), LONG),
    _case(
        "rnn_simple_backwards_masked_states",
        _called(
            _simple(
                L.SimpleRNN,
                3,
                use_bias=False,
                go_backwards=True,
                return_sequences=True,
                return_state=True,
            ),
            states=1,
            masked=True,
        ),
        SHORT,
    ),
    _case("rnn_lstm", _recurrent(L.LSTM, 3), LONG),
    _case("rnn_lstm_sequences", _recurrent(L.LSTM, 3, return_sequences=True), LONG),
    _case("rnn_lstm_wide", _recurrent(L.LSTM, 20, return_sequences=True), (4, 30)),
    _case("rnn_lstm_backwards", _recurrent(L.LSTM, 3, go_backwards=True), LONG),
    _case("rnn_lstm_no_bias", _simple(L.LSTM, 3, use_bias=False, unroll=True), LONG),
    _case(
        "rnn_lstm_masked", _called(_recurrent(L.LSTM, 3, return_sequences=True), masked=True), LONG
    ),
    _case(
        "rnn_lstm_masked_zero_output_unrolled",
        _called(
            _recurrent(L.LSTM, 3, return_sequences=True, zero_output_for_mask=True, unroll=True),
            masked=True,
        ),
        SHORT,
    ),
    _case(
        "rnn_lstm_states",
        _called(_recurrent(L.LSTM, 3, return_sequences=True, return_state=True), states=2),
        LONG,
    ),
    _case("rnn_gru", _recurrent(L.GRU, 3, return_sequences=True), LONG),
    _case("rnn_gru_backwards", _recurrent(L.GRU, 3, go_backwards=True, unroll=True), LONG),
    _case("rnn_gru_no_bias", _simple(L.GRU, 3, use_bias=False), LONG),
    _case("rnn_gru_masked", _called(_recurrent(L.GRU, 3, go_backwards=True), masked=True), LONG),
    _case(
        "rnn_gru_masked_states",
        _called(
            _recurrent(L.GRU, 3, return_sequences=True, return_state=True), states=1, masked=True
        ),
        LONG,
    ),
    _case("rnn_gru_before", _recurrent(L.GRU, 3, reset_after=False), LONG),
    _case(
        "rnn_gru_before_states",
        _called(_recurrent(L.GRU, 3, reset_after=False, return_state=True), states=1),
        LONG,
    ),
    _case("rnn_gru_before_wide", _recurrent(L.GRU, 20, reset_after=False), (4, 30)),
    _case(
        "rnn_gru_before_masked", _called(_recurrent(L.GRU, 3, reset_after=False), masked=True), LONG
    ),
    _case("rnn_shared", twice(_lstm_and_gru), SHORT),
    _case(
        "rnn_zero_output_for_mask",
        _called(
            lambda: L.RNN(L.GRUCell(3), return_sequences=True, zero_output_for_mask=True),
            masked=True,
        ),
        LONG,
    ),
    _case("rnn_of_lstm_cell", lambda: L.RNN(L.LSTMCell(3, bias_initializer="ones")), LONG),
    _case("rnn_bidirectional", lambda: L.Bidirectional(L.LSTM(3, return_sequences=True)), LONG),
    _case(
        "rnn_bidirectional_masked",
        _called(lambda: L.Bidirectional(L.GRU(2), merge_mode="sum"), masked=True),
        LONG,
    ),
    _case(
        "rnn_stacked",
        lambda: keras.Sequential([L.LSTM(4, return_sequences=True), L.SimpleRNN(3)]),
        LONG,
    ),
    *(
        _case(f"rnn_{name}_{rates}", _fixed_dropout(_recurrent(make, 3, **options)), LONG)
        for rates, dropout in {
            "dropout": {"dropout": 0.3},
            "recurrent_dropout": {"recurrent_dropout": 0.3},
            "both_dropouts": {"dropout": 0.3, "recurrent_dropout": 0.3},
        }.items()
        for name, make, options in [
            ("simple", L.SimpleRNN, dropout),
            ("lstm", L.LSTM, dropout),
            ("gru", L.GRU, dropout),
            ("gru_before", L.GRU, {"reset_after": False, **dropout}),
        ]
    ),
]
