"""The monitor against gradients worked out by hand, what it must not disturb, and the plot."""

import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tf_lowrank_dp import diagnostics

GENERATOR = np.random.default_rng(0)
X, Y = (GENERATOR.normal(size=(12, n)).astype("float32") for n in (6, 4))


def linear():
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4, use_bias=False)])
    model.compile(keras.optimizers.SGD(0.1), loss="mse")
    return model


def svd(matrix, rank):
    u, s, vt = np.linalg.svd(np.asarray(matrix, np.float64), full_matrices=False)
    return u[:, :rank], s, vt[:rank].T


def residual(gradient, history, rank):
    u, _, v = svd(history, rank)
    middle = (np.eye(6) - u @ u.T) @ gradient @ (np.eye(4) - v @ v.T)
    return np.linalg.norm(middle) / np.linalg.norm(gradient)


@pytest.mark.parametrize("history", ["updates", "gradients"])
def test_records_of_gradient_descent(history):
    """Full-batch gradient descent on a linear model, done over again with NumPy."""
    model, rank = linear(), 2
    kernel = initial = np.array(model.trainable_variables[0], np.float64)
    monitor = diagnostics.SubspaceMonitor(X, Y, rank=rank, every=1, history=history)
    model.fit(X, Y, batch_size=12, epochs=4, verbose=0, callbacks=[monitor])
    found = monitor.history
    assert (found.steps, found.rank) == ([0, 1, 2, 3, 4], rank)
    [ranks], [old], [own] = (
        records.values()
        for records in (found.stable_rank, found.historical_residual, found.self_residual)
    )
    assert old[0] == 1.0
    before = None
    for step in range(5):
        gradient = 2 * X.T @ (X @ kernel - Y) / Y.size
        _, values, _ = svd(gradient, rank)
        assert ranks[step] == pytest.approx((values**2).sum() / values[0] ** 2, rel=1e-3)
        assert own[step] == pytest.approx(residual(gradient, gradient, rank), rel=1e-3)
        if step:
            past = kernel - initial if history == "updates" else before
            assert old[step] == pytest.approx(residual(gradient, past, rank), rel=1e-2)
        before, kernel = gradient, kernel - 0.1 * gradient


@pytest.mark.parametrize("every, steps", [(None, [0, 3, 6]), (2, [0, 2, 4, 6]), (5, [0, 5])])
def test_when_records_are_made(every, steps):
    model, monitor = linear(), diagnostics.SubspaceMonitor(X, Y, every=every)
    model.fit(X, Y, batch_size=4, epochs=2, verbose=0, callbacks=[monitor])
    assert monitor.history.steps == steps
    model.fit(X, Y, batch_size=4, epochs=1, verbose=0, callbacks=[monitor])
    assert monitor.history.steps[len(steps) :] == {None: [9], 2: [8], 5: [6]}[every]


def test_several_steps_in_one_call():
    model, monitor = linear(), diagnostics.SubspaceMonitor(X, Y, every=2)
    model.compile("sgd", loss="mse", steps_per_execution=3)
    model.fit(X, Y, batch_size=2, epochs=1, verbose=0, callbacks=[monitor])
    assert monitor.history.steps == [0, 3, 6]


def linear_of_8():
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(8, name="first"), keras.layers.Dense(4, name="head")]
    return keras.Sequential([keras.Input((6,)), *layers])


def deep(optimizer):
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((6,)),
            keras.layers.Dense(8, "tanh", name="first"),
            keras.layers.Dropout(0.5, seed=1),
            keras.layers.Dense(4, name="head"),
        ]
    )
    if isinstance(optimizer, tfdp.DPSGDOptimizer):
        tfdp.make_private(model)
    model.compile(optimizer, loss="mse", metrics=["mae"], jit_compile=False)
    return model


@pytest.mark.parametrize("is_private", [False, True])
def test_training_is_the_same_with_and_without_it(is_private):
    weights, logs = [], []
    for callbacks in ([], [diagnostics.SubspaceMonitor(X[:5], Y[:5], every=1)]):
        optimizer, arguments = "sgd", {}
        if is_private:
            optimizer = tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0, seed=0)
            arguments = {"sampling": "shuffle"}
        model = deep(optimizer)
        data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(4, drop_remainder=True)
        logs.append(model.fit(data, epochs=2, verbose=0, callbacks=callbacks, **arguments).history)
        weights.append([np.array(v) for v in model.trainable_variables])
    for without, watched in zip(*weights, strict=True):
        np.testing.assert_array_equal(without, watched)
    assert logs[0].keys() == logs[1].keys()
    assert logs[0]["loss"] == logs[1]["loss"]


def test_records_of_a_private_model_cost_nothing():
    monitor = diagnostics.SubspaceMonitor(X, Y, rank=2, include="first")
    model = deep(tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0))
    x, y = np.ones((20, 6), "float32"), np.ones((20, 4), "float32")
    model.fit(x, y, batch_size=5, epochs=1, verbose=0, callbacks=[monitor])
    spent = tfdp.privacy_spent(model, 1e-3)
    monitor.record()
    assert tfdp.privacy_spent(model, 1e-3) == spent
    assert monitor.history.steps == [0, 4, 4]
    [path] = monitor.history.stable_rank
    assert path.endswith("first/kernel")


def test_the_release_of_a_private_step_is_recorded_and_drawn():
    """Half of the 6 and of the 8 units is frozen from the second of four steps on."""
    monitor = diagnostics.SubspaceMonitor(X, Y, rank=1, every=1)
    model = tfdp.make_private(linear_of_8())
    optimizer = tfdp.LSGOptimizer(
        "sgd",
        rank=1,
        sparsity_start_step=1,
        include=["first"],
        l2_norm_clip=1.0,
        noise_multiplier=1.0,
    )
    model.compile(optimizer, loss="mse", jit_compile=False)
    model.fit(X, Y, batch_size=3, epochs=1, verbose=0, callbacks=[monitor])
    others = 8 + 8 * 4 + 4
    assert monitor.history.released == [14 + others] + [7 + others] * 4
    assert monitor.history.noise[0] > monitor.history.noise[1] > others
    _, _, release = diagnostics.plot_subspaces(monitor.history).axes
    np.testing.assert_array_equal(release.lines[0].get_ydata(), monitor.history.released)
    np.testing.assert_array_equal(release.lines[1].get_ydata(), monitor.history.noise)


@pytest.mark.parametrize("arguments", [{"rank": 0}, {"every": 0}, {"history": "weights"}])
def test_wrong_arguments_are_refused(arguments):
    with pytest.raises(ValueError, match="Expected"):
        diagnostics.SubspaceMonitor(X, Y, **arguments)


def recorded(paths=("m/a/kernel", "m/b/kernel", "m/c/kernel")):
    values = {path: [1.0, 0.5, float("nan")] for path in paths}
    return diagnostics.SubspaceHistory(4, [0, 5, 10], values, values, values)


def test_the_plot_has_a_line_for_each_rank_and_two_for_each_residual(tmp_path):
    history = recorded()
    history.self_residual = {path: [0.1, 0.2, 0.3] for path in history.stable_rank}
    figure = diagnostics.plot_subspaces(history)
    ranks, residuals = figure.axes
    assert (len(ranks.lines), len(residuals.lines)) == (3, 6)
    assert [line.get_label() for line in ranks.lines] == list(history.stable_rank)
    np.testing.assert_array_equal(residuals.lines[1].get_xdata(), [0, 5, 10])
    np.testing.assert_array_equal(residuals.lines[1].get_ydata(), [0.1, 0.2, 0.3])
    figure.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000
    figure = diagnostics.plot_subspaces(history, include=["a/", "b/"])
    assert [len(axes.lines) for axes in figure.axes] == [2, 4]


def test_what_cannot_be_drawn_is_refused():
    for history, include in [(diagnostics.SubspaceHistory(4), None), (recorded(), ["nowhere"])]:
        with pytest.raises(ValueError, match="(?s)Expected a history.*Received"):
            diagnostics.plot_subspaces(history, include)


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        diagnostics.plot_subspaces(recorded())
