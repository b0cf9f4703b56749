"""Padding is no data: not in the gradient, not in the loss, not in metrics."""

import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp


@pytest.fixture
def spy():
    """A custom metric that counts what it is shown, whatever its weight."""

    class Count(keras.metrics.Metric):
        def __init__(self):
            super().__init__(name="count")
            self.total = self.add_variable((), "zeros", name="total")

        def update_state(self, y_true, y_pred, sample_weight=None):
            self.total.assign_add(keras.ops.cast(keras.ops.shape(y_pred)[0], "float32"))

        def result(self):
            return self.total

    return Count()


def frozen_weights():
    return keras.optimizers.SGD(0.0)


@pytest.mark.parametrize("microbatch_size", [None, 5])
def test_loss_and_metrics_equal_evaluate_on_the_rows_drawn(
    private, small_model, data, microbatch_size
):
    """With rate 1 and a learning rate of 0, an epoch sees every row once and no padding."""
    x, y = data(rows=23)
    model = private(
        small_model(),
        frozen_weights(),
        metrics=["accuracy", keras.metrics.SparseCategoricalCrossentropy(from_logits=True)],
        microbatch_size=microbatch_size,
    )
    sampler = tfdp.PoissonSampler(x, y, batch_size=23, steps=1, pad_to_multiple=16)
    found = model.fit(sampler, steps_per_epoch=1, verbose=0).history
    expected = model.evaluate(x, y, verbose=0, return_dict=True)
    for name, value in expected.items():
        assert found[name][0] == pytest.approx(value, rel=1e-5), name


def test_weighted_metrics_and_losses_equal_evaluate_with_sample_weight(private, small_model, data):
    x, y = data()
    sample_weight = np.linspace(0.0, 2.0, len(x)).astype("float32")
    model = private(
        small_model(), frozen_weights(), metrics=["accuracy"], weighted_metrics=["accuracy"]
    )
    history = model.fit(x, y, batch_size=24, sample_weight=sample_weight, verbose=0).history
    expected = model.evaluate(x, y, sample_weight=sample_weight, verbose=0, return_dict=True)
    assert history.keys() == expected.keys()
    for name, value in expected.items():
        assert history[name][0] == pytest.approx(value, rel=1e-5), name


def test_several_outputs_each_report_their_own_loss(private, data):
    inputs = keras.Input((5,))
    outputs = {n: keras.layers.Dense(1, name=n)(inputs) for n in ("first", "second")}
    model = private(
        keras.Model(inputs, outputs),
        frozen_weights(),
        {"first": "mse", "second": "mae"},
        metrics={"first": ["mae"], "second": ["mse"]},
        loss_weights={"first": 2.0, "second": 0.5},
    )
    x, _ = data()
    y = {"first": x[:, :1], "second": x[:, 1:2] * 3}
    history = model.fit(x, y, batch_size=24, verbose=0).history
    expected = model.evaluate(x, y, verbose=0, return_dict=True)
    assert history.keys() == expected.keys()
    for name, value in expected.items():
        assert history[name][0] == pytest.approx(value, rel=1e-5), name


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("microbatch_size", [None, 5])
def test_metrics_see_no_padding(private, small_model, data, spy, microbatch_size, jit_compile):
    model = private(
        small_model(),
        frozen_weights(),
        metrics=[spy],
        microbatch_size=microbatch_size,
        jit_compile=jit_compile,
    )
    x, y = data()
    sampler = tfdp.PoissonSampler(x, y, batch_size=24, steps=3, pad_to_multiple=32)
    history = model.fit(sampler, steps_per_epoch=3, verbose=0).history
    assert history["count"] == [3 * 24]


@pytest.mark.parametrize("method", ["bookkeeping", "reweight", "vectorized"])
def test_padding_of_any_size_trains_the_same_weights(
    private, small_model, data, assert_same_weights, method
):
    models = []
    for pad_to_multiple in (1, 40):
        x, y = data()
        sampler = tfdp.PoissonSampler(
            x, y, batch_size=6, steps=4, pad_to_multiple=pad_to_multiple, seed=3
        )
        model = private(small_model(), gradient_method=method, l2_norm_clip=0.5, noise_multiplier=0)
        model.fit(sampler, steps_per_epoch=4, verbose=0)
        models.append(model)
    assert_same_weights(*models)


def test_zero_sample_weight_is_no_padding(private, small_model, data):
    """An example of weight zero is still an example: it is counted by metrics without weights."""
    x, y = data()
    model = private(small_model(), frozen_weights(), metrics=["accuracy"])
    weights = np.zeros(len(x), "float32")
    history = model.fit(x, y, batch_size=24, sample_weight=weights, verbose=0).history
    expected = np.mean(model.predict(x, verbose=0).argmax(-1) == y)
    assert history["loss"] == [0.0] and history["accuracy"][0] == pytest.approx(expected)


def dice(y_true, y_pred):
    """One value for all that it is shown."""
    ops = keras.ops
    hit = ops.sum(y_true * y_pred)
    return 2.0 * hit / (ops.sum(y_true) + ops.sum(y_pred))


def test_one_value_for_a_batch_equals_evaluate_on_the_rows_drawn(private, data):
    x = np.minimum(np.abs(data(rows=23)[0]), 1.0)
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(5, "sigmoid")])
    private(model, frozen_weights(), "mse", metrics=[dice, keras.metrics.MeanIoU(2), "hinge"])
    sampler = tfdp.PoissonSampler(x, x, batch_size=23, steps=1, pad_to_multiple=16)
    found = model.fit(sampler, verbose=0).history
    expected = model.evaluate(x, x, batch_size=23, verbose=0, return_dict=True)
    for name, value in expected.items():
        assert found[name][0] == pytest.approx(value, rel=1e-5), name


def test_one_value_for_a_batch_stays_a_number_where_draws_are_empty(private, small_model, data):
    model = private(
        small_model(outputs=1), loss="mse", metrics=[dice], l2_norm_clip=1.0, noise_multiplier=0
    )
    x, _ = data()
    history = model.fit(x, np.abs(x[:, :1]), batch_size=1, verbose=0).history
    assert np.isfinite(history["dice"][0])


def test_empty_draws_train(private, small_model, data):
    """At a rate of 1/24, about one draw in three is empty; each is a step and is counted."""
    x, y = data()
    model = private(small_model(), l2_norm_clip=1.0, noise_multiplier=1.0, metrics=["accuracy"])
    history = model.fit(x, y, batch_size=1, epochs=1, verbose=0).history
    assert np.all(np.isfinite([*history["loss"], *history["accuracy"]]))
    assert all(np.all(np.isfinite(v)) for v in model.trainable_variables)
    assert "24" in tfdp.privacy_statement(model, delta=1e-3)


class Measured(keras.Sequential):
    """With a metric that `compute_metrics` updates from the inputs, and a number beside it."""

    def __init__(self, layers):
        super().__init__(layers)
        self.largest = keras.metrics.Mean(name="largest")

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        results = super().compute_metrics(x, y, y_pred, sample_weight)
        self.largest.update_state(keras.ops.max(x, -1))
        return {**results, "largest": self.largest.result(), "beside": 1.0}


@pytest.mark.parametrize("microbatch_size", [None, 8])
def test_a_models_own_compute_metrics_sees_the_rows_drawn(private, data, microbatch_size):
    x, _ = data(rows=23)
    model = Measured([keras.Input((5,)), keras.layers.Dense(5)])
    private(
        model,
        frozen_weights(),
        "mse",
        metrics=["mae"],
        microbatch_size=microbatch_size,
    )
    sampler = tfdp.PoissonSampler(x, x, batch_size=23, steps=1, pad_to_multiple=16)
    with pytest.warns(UserWarning, match="beside"):
        found = model.fit(sampler, verbose=0).history
    assert found["largest"][0] == pytest.approx(np.mean(np.max(x, -1)), rel=1e-5)
    expected = model.evaluate(x, x, batch_size=23, verbose=0, return_dict=True)
    assert found["mae"][0] == pytest.approx(expected["mae"], rel=1e-5)
