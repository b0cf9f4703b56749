"""Custom loops with `PrivateTrainer`: the same gradients as `fit`, the same ledger and budget."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tests import oracle
from tf_lowrank_dp.accounting import Sampling
from tf_lowrank_dp.training import chosen_method
from tf_lowrank_dp.training.state import ledger_of

DELTA = 1e-3


def forward_of(model):
    def forward(batch):
        logits = model(batch["x"], training=True)
        loss = keras.losses.sparse_categorical_crossentropy(batch["y"], logits, from_logits=True)
        return loss, logits

    return forward


def sampler_of(data, **arguments):
    return tfdp.PoissonSampler(*data(), **{"batch_size": 6, "steps": 4, "seed": 5, **arguments})


def test_a_custom_loop_trains_the_same_weights_as_fit(
    private, small_model, data, assert_same_weights
):
    arguments = {"l2_norm_clip": 0.5, "noise_multiplier": 1.0, "seed": 7}
    regularized = {"kernel_regularizer": keras.regularizers.L2(0.01)}
    by_fit = private(small_model(**regularized), "adam", **arguments)
    by_fit.fit(sampler_of(data), verbose=0)
    model = private(small_model(**regularized), "adam", **arguments)
    sampler = sampler_of(data)
    trainer = tfdp.PrivateTrainer(model, sampler)
    for batch in sampler:
        trainer.apply(trainer.gradients(forward_of(model), batch))
    assert_same_weights(model, by_fit, 1e-4)
    assert tfdp.privacy_spent(model, DELTA) == tfdp.privacy_spent(by_fit, DELTA) > 0


def test_gradients_equal_the_oracles_clipped_mean(private, small_model, data):
    model = private(small_model(), l2_norm_clip=0.5, noise_multiplier=0)
    sampler = sampler_of(data)
    trainer = tfdp.PrivateTrainer(model, sampler)
    batch = {key: tf.convert_to_tensor(value) for key, value in next(iter(sampler)).items()}
    found = trainer.gradients(forward_of(model), batch)
    rest = {key: batch[key] for key in ("x", "y")}
    exact = oracle.per_example_gradients(model, lambda b: forward_of(model)(b)[0], rest)
    for a, b in zip(found, oracle.clipped_sums(exact, batch["presence"], 0.5), strict=True):
        np.testing.assert_allclose(a, b / 6, rtol=1e-3, atol=1e-6)


def test_every_call_counts_in_graphs_as_well(private, small_model, data):
    model = private(small_model(), noise_multiplier=1.0)
    sampler = sampler_of(data)
    trainer = tfdp.PrivateTrainer(model, sampler)

    @tf.function(reduce_retracing=True)
    def step(batch):
        trainer.apply(trainer.gradients(forward_of(model), batch))

    for batch in sampler.as_dataset():
        step(batch)
    by_fit = private(small_model(), noise_multiplier=1.0)
    by_fit.fit(sampler_of(data), verbose=0)
    assert tfdp.privacy_spent(model, DELTA) == tfdp.privacy_spent(by_fit, DELTA)


def test_the_budget_is_checked_before_each_gradient(private, small_model, data):
    model = private(small_model(), epsilon=2.0, delta=DELTA, accountant="rdp")
    sampler = sampler_of(data)
    trainer = tfdp.PrivateTrainer(model, sampler, steps=2)
    batches = iter(sampler)
    for _ in range(2):
        trainer.gradients(forward_of(model), next(batches))
    with pytest.raises(tfdp.PrivacyBudgetExceededError, match="2.0"):
        trainer.gradients(forward_of(model), next(batches))
    assert tfdp.privacy_spent(model) <= 2.0


def other_ways_to_train(private, data):
    return {
        "trainer": lambda model: tfdp.PrivateTrainer(model, sampler_of(data, batch_size=3)),
        "fit": lambda model: model.fit(*data(), batch_size=3, verbose=0),
        "conversion": tfdp.make_private,
        "standard and back": lambda model: tfdp.make_private(tfdp.make_standard(model)),
    }


@pytest.mark.parametrize("other", other_ways_to_train(None, None))
def test_a_trainer_whose_run_has_ended_refuses_and_its_releases_in_graphs_count(
    private, small_model, data, other
):
    model = private(small_model(), noise_multiplier=1.0)
    sampler = sampler_of(data)
    trainer = tfdp.PrivateTrainer(model, sampler)
    [*batches] = sampler
    step = tf.function(lambda batch: trainer.gradients(forward_of(model), batch))
    step(batches[0])
    other_ways_to_train(private, data)[other](model)
    before = tfdp.privacy_spent(model, DELTA)
    with pytest.raises(RuntimeError, match="Make a new PrivateTrainer"):
        trainer.gradients(forward_of(model), batches[1])
    with pytest.raises(RuntimeError, match="Make a new PrivateTrainer"):
        trainer.check_budget()
    assert tfdp.privacy_spent(model, DELTA) == before
    # Traced before: nothing can stop it.
    step({**batches[0], "draw": batches[1]["draw"]})
    assert tfdp.privacy_spent(model, DELTA) > before


def test_an_endless_sampler_with_a_budget_needs_the_number_of_steps(private, small_model, data):
    model = private(small_model(), epsilon=2.0, delta=DELTA)
    with pytest.raises(ValueError, match="(?s)Expected steps.*Received: None"):
        tfdp.PrivateTrainer(model, sampler_of(data, steps=None))


def test_noise_of_two_gradients_of_one_batch_differs(private, small_model, data):
    model = private(small_model(), noise_multiplier=1.0)
    sampler = sampler_of(data)
    trainer = tfdp.PrivateTrainer(model, sampler.sampling, steps=2)
    batch = next(iter(sampler))
    del batch["draw"]
    copies = [tf.nest.map_structure(np.copy, batch) for _ in range(2)]
    first, second = (trainer.gradients(forward_of(model), copy) for copy in copies)
    assert all(np.all(np.not_equal(a, b)) for a, b in zip(first, second, strict=True))


def test_a_standard_model_is_refused(small_model, data):
    model = small_model()
    model.compile(tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0))
    with pytest.raises(tfdp.NotPrivateError, match="(?s)Expected.*make_private"):
        tfdp.PrivateTrainer(model, sampler_of(data))


def test_another_forward_is_probed_before_its_first_release(private, small_model, data):
    model = private(small_model(), noise_multiplier=1.0)
    sampler = sampler_of(data)
    trainer = tfdp.PrivateTrainer(model, sampler)
    first, batch, *_ = sampler
    trainer.gradients(forward_of(model), first)

    def mixing(batch):
        losses, logits = forward_of(model)(batch)
        return losses - tf.reduce_mean(losses), logits

    with pytest.raises(tfdp.UnsupportedModelError, match="other examples|joins the examples"):
        trainer.gradients(mixing, batch)
    assert ledger_of(model).num_steps == 1


def test_a_forward_that_is_made_again_at_each_step_is_probed_and_traced_once(
    private, small_model, data, monkeypatch
):
    probed, probe = [], chosen_method.probe

    def counted(*args, **kwargs):
        probed.append(args)
        return probe(*args, **kwargs)

    monkeypatch.setattr(chosen_method, "probe", counted)
    model = private(small_model(), noise_multiplier=1.0)
    sampler = sampler_of(data)
    trainer = tfdp.PrivateTrainer(model, sampler)
    for batch in sampler:
        trainer.gradients(lambda b: forward_of(model)(b), batch)
    assert len(probed) == 1


class Own(keras.layers.Layer):
    """A product of the author's, which is found by its operation."""

    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1], 5))

    def call(self, x):
        return keras.ops.tanh(x @ self.w)


def test_two_forwards_in_turn_may_call_an_own_layer_differently(private, small_model, data):
    model = keras.Sequential([keras.Input((5,)), Own(), small_model()])
    private(model, noise_multiplier=0, l2_norm_clip=float("inf"))
    sampler = sampler_of(data)
    trainer = tfdp.PrivateTrainer(model, sampler, steps=4)
    once = forward_of(model)

    def twice(batch):
        return once(batch)[0] + once({**batch, "x": -batch["x"]})[0], ()

    for forward, batch in zip([once, twice, once], sampler, strict=False):
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(forward(batch)[0] * batch["presence"]) / 6
        expected = tape.gradient(total, [v.value for v in model.trainable_variables])
        for a, b in zip(trainer.gradients(forward, batch), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert ledger_of(model).num_steps == 3


def test_a_trainer_does_not_go_on_after_its_model_was_compiled_anew(private, small_model, data):
    model = private(small_model(), noise_multiplier=1.0)
    sampler = sampler_of(data)
    trainer = tfdp.PrivateTrainer(model, sampler)
    batch = next(iter(sampler))
    model.compile(tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, epsilon=3.0, delta=DELTA))
    with pytest.raises(RuntimeError, match="Make a new PrivateTrainer"):
        trainer.gradients(forward_of(model), batch)
    with pytest.raises(RuntimeError, match="Make a new PrivateTrainer"):
        trainer.check_budget()
    assert tfdp.privacy_spent(model) == 0.0


def test_an_update_between_gradients_and_apply_is_noticed(private, small_model, data):
    """Once it passed for the update of `apply`: 0.03 was said where nothing was private."""
    model = private(small_model(), noise_multiplier=1.0)
    sampler = sampler_of(data)
    trainer = tfdp.PrivateTrainer(model, sampler)
    for step, batch in enumerate(sampler):
        gradients = trainer.gradients(forward_of(model), batch)
        if step == 2:
            assert not ledger_of(model).prior_spend_unknown
            model.trainable_variables[0].assign_add(tf.ones([5, 4]))
        trainer.apply(gradients)
    assert ledger_of(model).prior_spend_unknown


def test_another_release_of_one_draw_is_refused(private, small_model, data):
    """Two looks at one draw tell more than is counted: epsilon 2.3 instead of 0.9."""
    model = private(small_model(), noise_multiplier=1.0)
    sampler = sampler_of(data)
    trainer = tfdp.PrivateTrainer(model, sampler)
    batch = next(iter(sampler))
    trainer.gradients(forward_of(model), batch)
    with pytest.raises(RuntimeError, match="a batch of its own"):
        trainer.gradients(forward_of(model), dict(batch))
    assert ledger_of(model).num_steps == 1


def shuffled(data, rows=24, size=6):
    x, y = data(rows)
    return [
        {"x": x[at : at + size], "y": y[at : at + size], "presence": np.ones(size, "float32")}
        for at in range(0, rows, size)
    ]


def test_a_pass_over_shuffled_data_counts_as_it_is_begun(private, small_model, data):
    """20 passes that were left after a step of four were counted as 5: 4.98 instead of 11.5."""
    model = private(small_model(), noise_multiplier=4.0)
    trainer = tfdp.PrivateTrainer(model, Sampling.shuffle(6, steps_per_pass=4), steps=80)
    forward = forward_of(model)
    for _ in range(20):
        for batch in trainer.one_pass(shuffled(data)):
            trainer.apply(trainer.gradients(forward, batch))
            break
    assert 11.4 < tfdp.privacy_spent(model, 1e-5) < 11.6
    with pytest.raises(RuntimeError, match="one_pass"):
        trainer.gradients(forward, batch)
    with pytest.raises(ValueError, match="at most 4 batches"):
        list(trainer.one_pass(shuffled(data, 30)))


def test_passes_that_are_walked_side_by_side_count_as_those_begun(private, small_model, data):
    """The first batch of a pass, released within another that holds it as well, counts as two."""
    model = private(small_model(), noise_multiplier=4.0)
    sampling = Sampling.shuffle(6, steps_per_pass=4)
    trainer = tfdp.PrivateTrainer(model, sampling, steps=80)
    first, second = trainer.one_pass(shuffled(data)), trainer.one_pass(shuffled(data)[::-1])
    batch = next(first)
    next(second)
    trainer.apply(trainer.gradients(forward_of(model), batch))
    with pytest.raises(RuntimeError, match="another view of a batch"):
        trainer.gradients(forward_of(model), shuffled(data)[3])
    for batch in second:
        trainer.apply(trainer.gradients(forward_of(model), batch))
    true = tfdp.accounting.PrivacyLedger([tfdp.accounting.LedgerEntry(sampling, 4.0, steps=8)])
    assert tfdp.privacy_spent(model, DELTA) >= true.epsilon(DELTA)
    with pytest.raises(RuntimeError, match="Finish a pass before the next"):
        next(first)


def test_passes_of_two_trainers_of_one_run_are_those_of_the_run(private, small_model, data):
    """Each took the first batch of a pass, and one pass was counted."""
    model, sampling = private(small_model(), noise_multiplier=4.0), Sampling.shuffle(6, 4)
    one, other = (tfdp.PrivateTrainer(model, sampling, steps=80) for _ in range(2))
    batches, forward = shuffled(data), forward_of(model)
    first, second = one.one_pass(batches), other.one_pass(batches)
    batch, _ = next(first), next(second)
    one.apply(one.gradients(forward, batch))
    with pytest.raises(RuntimeError, match="another view of a batch"):
        other.gradients(forward, batch)
    second.close()
    for batch in other.one_pass(batches):  # the same arrays again
        other.apply(other.gradients(forward, batch))
    assert model.optimizer.ledger.num_steps == 12


def test_a_layer_that_is_unfrozen_before_apply_is_refused(private, small_model, data):
    model = private(small_model(), noise_multiplier=1.0)
    model.layers[0].trainable = False
    sampler = sampler_of(data)
    trainer = tfdp.PrivateTrainer(model, sampler, steps=2)
    gradients = trainer.gradients(forward_of(model), next(iter(sampler)))
    model.layers[0].trainable = True
    with pytest.raises(RuntimeError, match="frozen or unfrozen since"):
        trainer.apply(gradients)


def test_a_graph_takes_no_step_after_its_budget(private, small_model, data):
    model = private(small_model(), epsilon=2.0, delta=DELTA, accountant="rdp")
    sampler = sampler_of(data)
    trainer = tfdp.PrivateTrainer(model, sampler, steps=2)
    step = tf.function(lambda batch: trainer.gradients(forward_of(model), batch))
    batches = iter(sampler.as_dataset().repeat())
    for _ in range(2):
        step(next(batches))
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most 2 steps"):
        step(next(batches))
    assert tfdp.privacy_spent(model) <= 2.0


def test_a_graph_of_a_resumed_run_takes_no_step_after_its_budget(
    private, small_model, data, tmp_path
):
    model = private(small_model(), epsilon=2.0, delta=DELTA, accountant="rdp", planned_steps=3)
    trainer = tfdp.PrivateTrainer(model, sampler_of(data), steps=2)
    for batch in sampler_of(data, steps=2):
        trainer.apply(trainer.gradients(forward_of(model), batch))
    model.save(tmp_path / "model.keras")
    model = keras.models.load_model(tmp_path / "model.keras")
    tfdp.make_private(model)
    sampler = sampler_of(data, seed=6)
    trainer = tfdp.PrivateTrainer(model, sampler, steps=1)
    step = tf.function(lambda batch: trainer.gradients(forward_of(model), batch))
    batches = iter(sampler.as_dataset().repeat())
    step(next(batches))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Expected at most 1 steps"):
        step(next(batches))
    assert tfdp.privacy_spent(model) <= 2.0


@pytest.mark.parametrize("batch", [{"x": np.ones((2, 5))}, (np.ones((2, 5)), np.ones(2)), [1.0]])
def test_what_is_no_logical_batch_is_refused_before_anything_is_spent(
    private, small_model, data, batch
):
    model = private(small_model(), noise_multiplier=1.0)
    trainer = tfdp.PrivateTrainer(model, sampler_of(data))
    with pytest.raises(ValueError, match="Expected a logical batch.*presence"):
        trainer.gradients(forward_of(model), batch)
    assert tfdp.privacy_spent(model, DELTA) == 0.0


@pytest.mark.parametrize("in_graph", [False, True])
def test_no_tape_sees_behind_what_is_released(private, small_model, data, in_graph):
    """An outer step of meta-learning had exact derivatives of the private sums: 4.9 clips."""
    model = private(small_model(), noise_multiplier=1.0)
    sampler = sampler_of(data)
    trainer, forward = tfdp.PrivateTrainer(model, sampler), forward_of(model)

    def derivatives(batch):
        with tf.GradientTape() as tape:
            gradients = trainer.gradients(forward, batch)
            size = tf.add_n([tf.reduce_sum(g**2) for g in gradients])
        return tape.gradient(size, [v.value for v in model.trainable_variables])

    function = tf.function(derivatives) if in_graph else derivatives
    assert function(next(iter(sampler.as_dataset()))) == [None] * len(model.trainable_variables)


def test_what_a_teacher_spent_meanwhile_counts_for_a_student_in_a_graph(private, small_model, data):
    """A loop in a graph does not say when it read the teacher: 1.57 was reported for 3.64."""
    teacher, student = (private(small_model(), noise_multiplier=1.0) for _ in range(2))
    sampler = sampler_of(data)
    trainer = tfdp.PrivateTrainer(student, sampler, steps=40)

    def forward(batch):
        difference = student(batch["x"]) - teacher(batch["x"])
        return keras.ops.sum(keras.ops.square(difference), -1), ()

    step = tf.function(lambda batch: trainer.apply(trainer.gradients(forward, batch)))
    draws = iter(sampler.as_dataset())
    step(next(draws))
    teacher.fit(*data(), batch_size=8, verbose=0)
    step(next(draws))
    assert ledger_of(student).num_steps == 2 + ledger_of(teacher).num_steps
