"""Passes, plans and threads: what is trained is counted, and noise is that of what is trained."""

import threading

import dp_accounting
import keras
import numpy as np
import pytest
from dp_accounting import dp_event

import tf_lowrank_dp as tfdp

DELTA = 1e-3


class EndEpochsEarly(keras.callbacks.Callback):
    """The next epoch after two batches."""

    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = batch >= 1

    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = False


def test_passes_that_a_callback_ends_early_count_as_whole_ones(
    private, small_model, data, same_batches
):
    """The first rows have five releases: five Gaussians, by replacing one row."""
    model = private(small_model(), noise_multiplier=2.0, delta=DELTA)
    batches = same_batches(*data(), batch_size=4)
    model.fit(batches, sampling="shuffle", epochs=5, callbacks=[EndEpochsEarly()], verbose=0)
    accountant = dp_accounting.pld.PLDAccountant()
    five = accountant.compose(dp_accounting.GaussianDpEvent(2.0 / 2), 5)  # a replaced row: 2 clips
    assert tfdp.privacy_spent(model, DELTA) == pytest.approx(five.get_epsilon(DELTA), rel=1e-3)
    [release] = tfdp.privacy_report(model).releases
    assert release["steps"] == 26  # four passes of six, and two steps of the last


@pytest.mark.parametrize(("early", "passes", "traces"), [(False, 6, 1), (True, 6, 2)])
def test_calls_of_fit_on_shuffled_data_count_their_passes_and_share_one_step(
    private, small_model, data, same_batches, early, passes, traces
):
    """Each row has six releases, also where the second call has begun its last pass only."""
    model = private(small_model(), noise_multiplier=2.0, delta=DELTA)
    batches = same_batches(*data(), batch_size=4)
    functions = set()
    for call in range(3):
        callbacks = [EndEpochsEarly()] if early and call == 1 else []
        model.fit(batches, sampling="shuffle", epochs=2, callbacks=callbacks, verbose=0)
        functions.add(model.train_function)
    accountant = dp_accounting.pld.PLDAccountant()
    all_passes = accountant.compose(dp_accounting.GaussianDpEvent(2.0 / 2), passes)
    assert tfdp.privacy_spent(model, DELTA) == pytest.approx(
        all_passes.get_epsilon(DELTA), rel=1e-3
    )
    assert len(functions) == traces


def test_passes_of_data_that_go_on_are_not_counted_anew(private, small_model, data):
    x, y = data()

    def batches():
        while True:
            for start in range(0, 24, 4):
                yield x[start : start + 4], y[start : start + 4]

    model = private(small_model(), noise_multiplier=2.0, delta=DELTA)
    settings = {"sampling": "shuffle", "batch_size": 4, "steps_per_epoch": 6, "verbose": 0}
    model.fit(batches(), epochs=2, **settings)
    assert tfdp.privacy_report(model).releases[0]["steps"] == 12


class Stop(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        raise KeyboardInterrupt


@pytest.mark.parametrize("released", [False, True])
@pytest.mark.parametrize(("first", "then"), [(50, 2), (1, 10)])
def test_noise_is_planned_for_the_steps_of_the_fit_that_takes_them(
    private, small_model, data, first, then, released
):
    def trained(*epochs):
        model = private(small_model(), epsilon=1.0, delta=DELTA)
        if released:
            event = dp_accounting.GaussianDpEvent(20.0)
            tfdp.record_release(model, event, "a count")
        for index, number in enumerate(epochs):
            callbacks = [Stop()] if index < len(epochs) - 1 else []
            try:
                model.fit(*data(), batch_size=8, epochs=number, callbacks=callbacks, verbose=0)
            except KeyboardInterrupt:
                pass
        return model.optimizer.calibrated_noise_multiplier, tfdp.privacy_spent(model, DELTA)

    assert trained(first, then) == pytest.approx(trained(then), rel=1e-6)


def test_threads_together_stay_within_the_budget(private, small_model, data):
    x, y = data()
    model = private(small_model(), epsilon=1.0, delta=DELTA)
    sampler = tfdp.PoissonSampler(x, y, batch_size=8, steps=12)
    trainer = tfdp.PrivateTrainer(model, sampler, steps=12)

    def forward(batch):
        logits = model(batch["x"], training=True)
        loss = keras.losses.sparse_categorical_crossentropy(batch["y"], logits, from_logits=True)
        return loss, logits

    trainer.apply(trainer.gradients(forward, next(iter(sampler))))
    together = threading.Barrier(6)

    def work():
        batches = iter(tfdp.PoissonSampler(x, y, batch_size=8, steps=12))
        together.wait()
        with pytest.raises(tfdp.PrivacyBudgetExceededError):
            for batch in batches:
                trainer.gradients(forward, batch)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tfdp.privacy_report(model).releases[0]["steps"] == 12
    assert tfdp.privacy_spent(model, DELTA) <= 1.0


class Fail(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        raise RuntimeError("a typo")


def test_a_fit_that_fails_takes_no_batch_of_an_iterator_of_any_kind(private, small_model, data):
    """`map` has no weak references, and batches that were read ahead were lost with its place."""
    x, y = data()
    used = []

    def prepared(start):
        used.append(start)
        return x[start : start + 6], y[start : start + 6]

    batches = map(prepared, [0, 6, 12, 18] * 3)
    model = private(small_model(), noise_multiplier=1.0)
    settings = {"sampling": "shuffle", "batch_size": 6, "steps_per_epoch": 4, "verbose": 0}
    with pytest.raises(RuntimeError, match="a typo"):
        model.fit(batches, callbacks=[Fail()], **settings)
    assert 0 < len(used) < 4
    model.fit(batches, **settings)
    model.fit(batches, **settings)
    assert used == [0, 6, 12, 18] * 2


@pytest.mark.parametrize("kind", ["the iterator", "a generator around it"])
def test_a_function_that_takes_from_a_shared_loader_keeps_its_passes(
    private, small_model, data, kind
):
    x, y = data()
    used = []

    def loader():
        while True:
            for start in range(0, 24, 6):
                used.append(start)
                yield x[start : start + 6], y[start : start + 6]

    shared = loader()

    def around():
        for _ in range(4):
            yield next(shared)

    source = (lambda: shared) if kind == "the iterator" else around
    model = private(small_model(), noise_multiplier=1.0)
    settings = {"sampling": "shuffle", "batch_size": 6, "steps_per_epoch": 4, "verbose": 0}
    with pytest.raises(RuntimeError, match="a typo"):
        model.fit(source, callbacks=[Fail()], **settings)
    for _ in range(3):
        model.fit(source, **settings)
    assert used[:12] == [0, 6, 12, 18] * 3 and len(used) <= 14


class Drawing(keras.utils.PyDataset):
    """Draws its batches anew after each epoch, as Keras documents it."""

    def __init__(self, x, y):
        super().__init__()
        self.x, self.y, self.draws, self.used = x, y, 0, []

    def on_epoch_end(self):
        self.draws += 1

    def __len__(self):
        return 3

    def __getitem__(self, index):
        self.used.append((self.draws, index))
        return self.x[index : index + 4], self.y[index : index + 4]


def test_a_data_set_that_draws_after_each_epoch_does_so_between_two_fits(
    private, small_model, data
):
    batches = Drawing(*data())
    model = private(small_model(), noise_multiplier=1.0)
    for _ in range(3):
        model.fit(batches, sampling="poisson", num_examples=24, batch_size=4, verbose=0)
    assert batches.draws == 2
    assert {(draw, index) for draw in range(3) for index in range(3)} <= set(batches.used)


@pytest.mark.parametrize(
    "event",
    [
        dp_accounting.LaplaceDpEvent(0.0),
        dp_event.DiscreteLaplaceDpEvent(-1.0, 1),
        dp_event.MixtureOfGaussiansDpEvent(1.0, [0.0, np.inf], [0.5, 0.5]),
        dp_event.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0], [0.3, 0.3]),
        dp_event.MixtureOfGaussiansDpEvent(1.0, [-1.0, 1.0], [0.5, 0.5]),
        dp_event.RepeatAndSelectDpEvent(dp_accounting.GaussianDpEvent(2.0), np.nan, 1.0),
        dp_event.RepeatAndSelectDpEvent(dp_accounting.GaussianDpEvent(2.0), -3.0, 1.0),
        dp_event.RepeatAndSelectDpEvent(dp_accounting.GaussianDpEvent(2.0), 0.5, 1.0),
        dp_event.DiscreteLaplaceDpEvent(1.0, 0),
        dp_accounting.GaussianDpEvent(1e200),
    ],
    ids=str,
)
def test_events_without_an_epsilon_are_refused_and_change_nothing(
    private, small_model, data, event
):
    model = private(small_model(), noise_multiplier=2.0, delta=DELTA)
    model.fit(*data(), batch_size=8, verbose=0)
    before = tfdp.privacy_statement(model)
    with pytest.raises(ValueError, match="to have noise|is possible|can compute"):
        tfdp.record_release(model, event, "a release")
    assert tfdp.privacy_statement(model) == before
