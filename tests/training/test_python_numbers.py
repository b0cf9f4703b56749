"""What Python code of the data draws while `fit` trains follows no seed that somebody knows."""

import random

import keras
import numpy as np
import pytest
import tensorflow as tf

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


class FlipsOfBatches(keras.utils.PyDataset):
    """The same with whole batches."""

    def __init__(self):
        super().__init__()
        self.drawn = []

    def __len__(self):
        return 2

    def __getitem__(self, index):
        self.drawn.append((random.random(), np.random.rand()))
        return np.ones((8, 5), "float32"), np.zeros(8, "int32")


def _numbers(pairs):
    return {number for pair in pairs for number in pair}


def _drawn_in_fit(private, small_model, source, **arguments):
    """The numbers that were drawn in a fit with a seed, and those that are drawn after it."""
    model = private(small_model())
    keras.utils.set_random_seed(42)
    data = tfdp.Records(source) if isinstance(source, Flips) else source
    source.drawn.clear()
    model.fit(data, verbose=0, **arguments)
    return source.drawn[-len(source) :], (random.random(), np.random.rand())


def _drawn_in_loop(private, small_model, seed=None):
    """The numbers that were drawn in a custom loop that begins with a seed."""
    model, source = private(small_model()), Flips()
    sampler = tfdp.PoissonSampler(
        tfdp.Records(source, num_parallel_calls=1), batch_size=ROWS, steps=3, seed=seed
    )
    trainer = tfdp.PrivateTrainer(model, sampler)

    def forward(batch):
        logits = model(batch["x"], training=True)
        return keras.losses.sparse_categorical_crossentropy(batch["y"], logits), ()

    source.drawn.clear()
    keras.utils.set_random_seed(42)
    for batch in sampler:
        trainer.apply(trainer.gradients(forward, batch))
    return source.drawn


def test_numbers_of_python_and_numpy_are_secret_in_fit(private, small_model):
    """With numbers that all know, one record less moved those after it: 17 clips."""
    settings = {"batch_size": ROWS, "steps_per_epoch": 2}
    first, _ = _drawn_in_fit(private, small_model, Flips(), **settings)
    second, _ = _drawn_in_fit(private, small_model, Flips(), **settings)
    assert len(_numbers([*first, *second])) == 2 * len([*first, *second]) == 4 * ROWS


def test_numbers_of_batches_are_secret_in_fit_and_go_on_as_before(private, small_model):
    settings = {"sampling": "shuffle", "batch_size": 8, "epochs": 2}
    first, after = _drawn_in_fit(private, small_model, FlipsOfBatches(), **settings)
    second, after_second = _drawn_in_fit(private, small_model, FlipsOfBatches(), **settings)
    assert len(_numbers([*first, *second])) == 2 * len([*first, *second]) == 8
    assert after == after_second


@pytest.mark.parametrize("made", ["an iterator", "a function"])
def test_numbers_of_batches_that_are_read_ahead_are_secret_as_well(private, small_model, made):
    """The first two batches of a generator are looked at before the model is."""

    def drawn():
        numbers = []

        def batches():
            for _ in range(3):
                numbers.append((random.random(), np.random.rand()))
                yield np.ones((8, 5), "float32"), np.zeros(8, "int32")

        model = private(small_model())
        keras.utils.set_random_seed(42)
        data = batches() if made == "an iterator" else batches
        stated = {"num_examples": 24, "batch_size": 8, "steps_per_epoch": 3}
        model.fit(data, sampling="shuffle", verbose=0, **stated)
        return numbers

    first, second = drawn(), drawn()
    assert len(_numbers([*first, *second])) == 2 * len([*first, *second]) >= 12


def test_numbers_of_records_are_secret_in_a_custom_loop(private, small_model):
    first, second = (_drawn_in_loop(private, small_model) for _ in range(2))
    assert len(_numbers([*first, *second])) == 2 * len([*first, *second]) > 2 * ROWS


@pytest.mark.filterwarnings("ignore:.*seed")
def test_numbers_of_records_follow_the_seed_of_a_sampler_that_has_one(private, small_model):
    first, second = (_drawn_in_loop(private, small_model, seed=1) for _ in range(2))
    assert [numpy for _, numpy in first] == [numpy for _, numpy in second]


class Own(Flips):
    """Draws from a generator of its own."""

    def __init__(self, by_index):
        super().__init__()
        self._by_index, self._generator = by_index, np.random.default_rng(0)

    def __getitem__(self, index):
        generator = np.random.default_rng([7, index]) if self._by_index else self._generator
        return generator.normal(size=5).astype("float32"), np.int32(0)


class OfKeras(Flips):
    """Draws by a layer."""

    def __getitem__(self, index):
        noise = keras.random.normal((5,), seed=GENERATOR)
        return keras.ops.convert_to_numpy(noise), np.int32(0)


GENERATOR = keras.random.SeedGenerator(3)


@pytest.mark.parametrize("source", [Own(by_index=False), OfKeras()], ids=["numpy", "keras"])
def test_a_source_that_draws_from_elsewhere_is_warned_of(source):
    with pytest.warns(UserWarning, match="random numbers are drawn from random or numpy.random"):
        tfdp.PoissonSampler(tfdp.Records(source), batch_size=4, steps=1)


class OfStrings(Flips):
    """Records whose texts are objects, the same in each reading."""

    def __getitem__(self, index):
        return np.array(["some", "text"], object), np.int32(0)


@pytest.mark.parametrize(
    "source", [Flips(), Own(by_index=True), OfStrings()], ids=["random", "by_index", "strings"]
)
def test_a_source_whose_numbers_are_secret_or_its_own_is_not(source, recwarn):
    of_texts = lambda x, y: (tf.strings.length(x), y)  # noqa: E731
    records = tfdp.Records(source, map=of_texts if isinstance(source, OfStrings) else None)
    tfdp.PoissonSampler(records, batch_size=4, steps=1)
    assert not [each for each in recwarn if "random numbers are drawn" in str(each.message)]


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

    data, inside = (np.ones((8, 5)), np.zeros(8)), []

    def train_another(logs):
        another = private(small_model())  # which seeds
        public = state()
        another.fit(*data, batch_size=8, verbose=0)
        now = state()
        inside.append(now[0] != public[0] and now[1] != public[1])

    outer = private(small_model())
    tell = keras.callbacks.LambdaCallback(on_train_begin=train_another)
    outer.fit(*data, batch_size=8, verbose=0, callbacks=[tell])
    assert inside == [True]
