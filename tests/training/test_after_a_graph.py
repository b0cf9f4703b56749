"""What others change after the last step of a graph is noticed, whenever somebody looks."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp


def a_loop(model, data, steps):
    """A trainer, what is differentiated, and the draws."""
    sampler = tfdp.PoissonSampler(*data(), batch_size=8, steps=steps)
    trainer = tfdp.PrivateTrainer(model, sampler, steps=steps)

    def forward(batch):
        logits = model(batch["x"], training=True)
        entropy = keras.losses.sparse_categorical_crossentropy
        return entropy(batch["y"], logits, from_logits=True), logits

    return trainer, forward, sampler.as_dataset()


@pytest.fixture
def trained(private, small_model, data):
    """A model after the steps of a custom loop in a graph, at which nobody has looked."""

    def train(jit_compile=False, apart=False):
        model = private(small_model(), noise_multiplier=2.0, delta=1e-3)
        trainer, forward, draws = a_loop(model, data, steps=3)

        gradients = tf.function(lambda batch: trainer.gradients(forward, batch))
        apply = tf.function(trainer.apply)

        @tf.function(jit_compile=jit_compile)
        def step(batch):
            trainer.apply(trainer.gradients(forward, batch))

        for batch in draws:
            if apart:
                released = gradients(batch)
                assert tfdp.privacy_spent(model, 1e-3) > 0
                apply(released)
            else:
                step(batch)
        return model

    return train


def is_known(model):
    return "unknown" not in tfdp.privacy_statement(model)


def ordinary_fit(model, x, y):
    other = keras.Sequential(model.layers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    other.compile("adam", loss)
    other.fit(x, y, verbose=0)


def units_change_places(model, x, y):
    """Sorted by what they are for private rows."""
    kernel, bias, head, last = model.get_weights()
    order = np.argsort((x @ kernel + bias).mean(0))[::-1]
    model.set_weights([kernel[:, order], bias[order], head[order], last])


CHANGES = {
    "units change places": units_change_places,
    "ordinary fit": ordinary_fit,
    "set_weights": lambda model, x, y: model.set_weights(
        [value + x.mean() for value in model.get_weights()]
    ),
    "assign": lambda model, x, y: model.trainable_variables[0].assign_add(
        tf.fill(model.trainable_variables[0].shape, 1e-3)
    ),
}


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_after_the_last_step_is_noticed(trained, data, change, jit_compile):
    model = trained(jit_compile)
    CHANGES[change](model, *data())
    assert not is_known(model)
    assert not is_known(model)


@pytest.mark.parametrize("apart", [False, True])
def test_what_the_steps_have_left_is_known(trained, data, apart):
    model = trained(apart=apart)
    assert is_known(model)
    model.fit(*data(), batch_size=8, verbose=0)
    assert is_known(model)


def test_a_change_is_noticed_after_another_private_run_as_well(trained, data):
    model = trained()
    ordinary_fit(model, *data())
    model.fit(*data(), batch_size=8, verbose=0)
    assert not is_known(model)


@pytest.mark.parametrize("applied_in_graph", [False, True])
@pytest.mark.parametrize("released_in_graph", [False, True])
def test_a_change_between_a_release_and_its_update_is_noticed(
    private, small_model, data, released_in_graph, applied_in_graph
):
    model = private(small_model(), noise_multiplier=2.0, delta=1e-3)
    trainer, forward, draws = a_loop(model, data, steps=4)

    def released(batch):
        return trainer.gradients(forward, batch)

    gradients = tf.function(released) if released_in_graph else released
    apply = tf.function(trainer.apply) if applied_in_graph else trainer.apply
    batches = iter(draws)
    for _ in range(2):
        apply(gradients(next(batches)))
        assert is_known(model)
    found = gradients(next(batches))
    assert is_known(model)
    found = gradients(next(batches))
    CHANGES["assign"](model, *data())
    apply(found)
    assert not is_known(model)


def a_fit(model, data, path):
    model.fit(*data(), batch_size=8, verbose=0)


def a_file(model, data, path):
    model.save_weights(path)
    model.load_weights(path)


@pytest.mark.parametrize("honest", [True, False])
@pytest.mark.parametrize("before", [a_fit, a_file])
@pytest.mark.parametrize("step_is", ["taken", "traced", "new"])
def test_a_change_before_the_first_step_of_a_graph_after_others_is_noticed(
    private, small_model, data, tmp_path, before, step_is, honest
):
    """After `fit`, or when a file was loaded, graphs took whatever they met for private."""
    model = private(small_model(), noise_multiplier=2.0, delta=1e-3)
    model.fit(*data(), batch_size=8, verbose=0)

    def begin():
        trainer, forward, draws = a_loop(model, data, steps=4)

        step = tf.function(lambda batch: trainer.apply(trainer.gradients(forward, batch)))
        return step, iter(draws)

    step, batches = begin()
    if step_is == "taken":
        step(next(batches))
        assert is_known(model)
    before(model, data, tmp_path / "model.weights.h5")
    if before is a_fit:
        step, batches = begin()
    if step_is == "traced":
        step.get_concrete_function(next(batches))
    if not honest:
        ordinary_fit(model, *data())
    step(next(batches))
    assert is_known(model) == honest
    step(next(batches))
    assert is_known(model) == honest
