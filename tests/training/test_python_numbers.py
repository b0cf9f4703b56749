"""What Python code of the data draws while `fit` trains follows no seed that somebody knows."""

import random

import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp

ROWS = 16


class Flips:
    """Records that are augmented where they are read, as in data sets of other libraries."""

    def __init__(self):
        self.drawn = []

    def __len__(self):
        return ROWS

    def __getitem__(self, index):
        self.drawn.append((random.random(), np.random.rand()))
        return np.ones(5, "float32"), np.int32(0)


def fitted(private, small_model, **settings):
    """The numbers that records have drawn in a fit with a seed, and those drawn after it."""
    model, source = private(small_model(), **settings), Flips()
    records = tfdp.Records(source)
    keras.utils.set_random_seed(42)
    model.fit(records, batch_size=ROWS, steps_per_epoch=2, verbose=0)
    return source.drawn[-ROWS:], (random.random(), np.random.rand())


def test_numbers_of_python_and_numpy_are_secret_in_fit_and_go_on_as_before(private, small_model):
    """With numbers that all know, one record less moved those after it: 17 clips."""
    first, after = fitted(private, small_model)
    second, after_second = fitted(private, small_model)
    assert len({number for numbers in [*first, *second] for number in numbers}) == 4 * ROWS
    assert after == after_second


@pytest.mark.filterwarnings("ignore:.*seed")
def test_a_run_with_a_seed_leaves_them_alone(private, small_model):
    model = private(small_model(), l2_norm_clip=1.0, noise_multiplier=1.0, seed=1)
    keras.utils.set_random_seed(42)
    expected = np.random.rand()
    keras.utils.set_random_seed(42)
    drawn = []
    tell = keras.callbacks.LambdaCallback(
        on_train_begin=lambda logs: drawn.append(np.random.rand())
    )
    model.fit(np.ones((8, 5)), np.zeros(8), batch_size=8, verbose=0, callbacks=[tell])
    assert drawn == [expected]


def test_they_stay_secret_until_the_last_of_two_fits_ends(private, small_model):
    def state():
        return random.getstate(), np.random.get_state()[1].tolist()

    data, before, inside = (np.ones((8, 5)), np.zeros(8)), state(), []

    def train_another(logs):
        private(small_model()).fit(*data, batch_size=8, verbose=0)
        inside.append(state())

    tell = keras.callbacks.LambdaCallback(on_train_begin=train_another)
    private(small_model()).fit(*data, batch_size=8, verbose=0, callbacks=[tell])
    assert inside[0][0] != before[0] and inside[0][1] != before[1]
