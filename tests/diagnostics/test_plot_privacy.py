"""The picture shows what the ledger says."""

import keras
import numpy as np

import tf_lowrank_dp as tfdp


def test_it_shows_epsilon_of_all_runs_and_the_target():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    x, y = np.ones((32, 3)), np.ones((32, 2))
    tfdp.make_private(model)
    for epsilon in (2.0, 4.0):
        model.compile(
            tfdp.DPSGDOptimizer(
                "sgd", l2_norm_clip=1.0, epsilon=epsilon, delta=1e-3, accountant="rdp"
            ),
            "mse",
        )
        model.fit(x, y, batch_size=8, epochs=1, verbose=0)
    axes = tfdp.plot_privacy(model).axes[0]
    spent, target, begin = axes.lines
    steps, epsilons = spent.get_data()
    assert (steps[0], epsilons[0]) == (0, 0) and steps[-1] == 8
    assert epsilons[-1] == tfdp.privacy_spent(model) <= 4.0
    assert epsilons[list(steps).index(4)] <= 2.0
    assert {*target.get_ydata()} == {4.0} and {*begin.get_xdata()} == {4}


def test_a_model_without_private_steps_has_spent_nothing():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("adam", "mse")
    (spent,) = tfdp.plot_privacy(model, delta=1e-5).axes[0].lines
    assert not np.any(spent.get_ydata())


def test_an_unknown_prior_spend_is_in_the_legend():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    optimizer = tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0, delta=1e-3)
    tfdp.make_private(model).compile(optimizer, "mse")
    model.fit(np.ones((16, 3)), np.ones((16, 2)), batch_size=8, verbose=0)
    model.set_weights([value + 1.0 for value in model.get_weights()])
    (spent,) = tfdp.plot_privacy(model).axes[0].lines
    assert spent.get_label() == "spent, prior spend unknown"


def test_what_names_adapted_layers_is_no_run():
    normalization = keras.layers.Normalization()
    x, y = np.ones((16, 3)), np.ones((16, 2))
    normalization.adapt(x)
    model = keras.Sequential([keras.Input((3,)), normalization, keras.layers.Dense(2)])
    optimizer = tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0, delta=1e-3)
    model.compile(optimizer, "mse")
    tfdp.make_private(model).fit(x, y, batch_size=8, verbose=0)
    (spent,) = tfdp.plot_privacy(model).axes[0].lines
    assert {*spent.get_xdata()} == {0, 1, 2}
