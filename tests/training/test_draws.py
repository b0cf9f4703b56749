"""One draw has one release, whichever trainer asks for it, and is of the stated sampling."""

from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.accounting import Sampling
from tf_lowrank_dp.sampling import make_batch

X = np.ones((20, 4), "float32")


def forward_of(model):
    return lambda batch: (keras.ops.square(model(batch["x"]))[:, 0], ())


def trainer_of(sampler, **arguments):
    model = tfdp.make_private(keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)]))
    model.compile(tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0), loss="mse")
    forward = forward_of(model)
    trainer = tfdp.PrivateTrainer(model, sampler, **arguments)
    return lambda batch: trainer.apply(trainer.gradients(forward, batch)), model


@pytest.mark.parametrize("iterate", [iter, lambda sampler: iter(sampler.as_dataset())])
def test_two_trainers_take_a_draw_each(iterate):
    """Two models that are released together would have spent more than two draws."""
    sampler = tfdp.PoissonSampler(X, batch_size=5, steps=4)
    (first, one), (second, other) = trainer_of(sampler), trainer_of(sampler)
    draws = iterate(sampler)
    batch = next(draws)
    first(batch)
    with pytest.raises(RuntimeError, match="by this or another trainer"):
        second(batch)
    assert tfdp.privacy_spent(other, 1e-3) == 0.0
    second(next(draws))
    assert tfdp.privacy_spent(one, 1e-3) == tfdp.privacy_spent(other, 1e-3) > 0


KINDS = pytest.mark.parametrize("kind", ["eager", "graph", "compiled"])


def refused(kind, step, model, batches, match):
    """A refusal: by an error, or where XLA drops it by gradients of nothing but NaN."""
    if kind == "eager":
        with pytest.raises(RuntimeError, match=match):
            for batch in batches:
                step(batch)
    elif kind == "graph":
        step = tf.function(step)
        with pytest.raises(tf.errors.OpError, match=match):
            for batch in batches:
                step(batch)
    else:
        step = tf.function(step, jit_compile=True)
        for batch in batches:
            step(batch)
        assert all(np.all(np.isnan(np.array(v))) for v in model.trainable_variables)


@KINDS
def test_draws_that_come_out_of_a_cache_again_are_refused(kind):
    """Two epochs of one cached pass were reported as twice as many independent draws."""
    sampler = tfdp.PoissonSampler(X, batch_size=5, steps=2)
    step, model = trainer_of(sampler)
    refused(kind, step, model, sampler.as_dataset().cache().repeat(2), "do not cache its batches")


@KINDS
@pytest.mark.parametrize("how", ["microbatches", "standard and back", "saved and loaded"])
def test_a_cache_is_known_after_a_conversion_or_a_load(kind, how, tmp_path):
    """A model made private anew in each epoch took it for new draws: 1.40 instead of 10.64."""
    sampler = tfdp.PoissonSampler(X, batch_size=5, steps=2)
    cached = sampler.as_dataset().cache()
    step, model = trainer_of(sampler)
    for batch in cached:
        step(batch)
    if how == "microbatches":
        tfdp.make_private(model, microbatch_size=2)
    elif how == "standard and back":
        optimizer = model.optimizer
        tfdp.make_private(tfdp.make_standard(model))
        model.compile(optimizer, loss="mse")
    else:
        model.save(tmp_path / "model.keras")
        model = tfdp.make_private(keras.models.load_model(tmp_path / "model.keras"))
    trainer, forward = tfdp.PrivateTrainer(model, sampler), forward_of(model)
    again = lambda batch: trainer.apply(trainer.gradients(forward, batch))  # noqa: E731
    refused(kind, again, model, cached, "do not cache its batches")


def test_where_xla_drops_errors_no_refused_batch_makes_room_for_the_next():
    """A loop that skips what is not finite released cached draws in all but the first step."""
    sampler = tfdp.PoissonSampler(X, batch_size=5, steps=4)
    model = trainer_of(sampler)[1]
    trainer, forward = tfdp.PrivateTrainer(model, sampler), forward_of(model)
    gradients = tf.function(lambda batch: trainer.gradients(forward, batch), jit_compile=True)
    cached = sampler.as_dataset().cache()
    finite = [all(np.all(np.isfinite(g)) for g in gradients(b)) for _ in range(3) for b in cached]
    assert finite == [True] * 4 + [False] * 8


def test_where_xla_drops_errors_a_refused_release_leaves_nothing_in_the_optimizer():
    """A draw that came 200 times was in the means and clip norms of all (8.4 for 0.9 reported)."""
    rows = np.random.default_rng(0).normal(3.0, 1.0, (20, 4)).astype("float32")
    sampler = tfdp.PoissonSampler(rows, batch_size=20, steps=8)  # at the rate 1
    model = tfdp.make_private(keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)]))
    arguments = {"l2_norm_clip": tfdp.QuantileClip(0.5), "centering": True}
    optimizer = tfdp.DPSGDOptimizer("sgd", noise_multiplier=1e-7, **arguments)
    model.compile(optimizer, loss="mse")
    trainer, forward = tfdp.PrivateTrainer(model, sampler, steps=8), forward_of(model)
    step = tf.function(lambda batch: trainer.gradients(forward, batch), jit_compile=True)
    batch, state = next(iter(sampler.as_dataset())), optimizer.algorithm_state
    found = []
    for _ in range(3):
        step(batch)
        found.append({name: state[name].numpy() for name in state.names})
    for name in ("centre_0", "clip_norms"):
        np.testing.assert_allclose(found[1][name], found[0][name], rtol=1e-4)
        np.testing.assert_allclose(found[2][name], found[0][name], rtol=1e-4)


@KINDS
def test_two_models_in_one_step_need_draws_of_their_own(kind):
    """What reads both, such as a generator that learns from its critic, would have spent more."""
    sampler = tfdp.PoissonSampler(X, batch_size=5, steps=2)
    (one, _), (two, other) = trainer_of(sampler), trainer_of(sampler)

    def step(batch):
        one(batch)
        two(batch)

    refused(kind, step, other, sampler.as_dataset(), "by this or another trainer")


def test_draws_of_a_seeded_sampler_are_refused_by_who_was_not_told():
    """The statement would not say that the draws can be repeated."""
    seeded = tfdp.PoissonSampler(X, batch_size=5, steps=2, seed=1)
    for sampler in (seeded.sampling, tfdp.PoissonSampler(X, batch_size=5)):
        step, model = trainer_of(sampler, steps=2)
        with pytest.raises(RuntimeError, match="whose draws nobody can repeat"):
            step(next(iter(seeded)))
        assert tfdp.privacy_spent(model, 1e-3) == 0.0
    step, model = trainer_of(seeded)
    step(next(iter(seeded)))
    assert "NOT PRIVATE" in tfdp.privacy_statement(model, 1e-3)


def batches_of_mine(count, presence=None):
    ones = np.ones(5, "float32")
    for number in range(count):
        yield make_batch(X[:5] + number, presence=ones.copy() if presence is None else presence)


def test_batches_of_ones_own_may_share_an_array_of_presence():
    step, model = trainer_of(Sampling.poisson(20, 5), steps=3)
    for batch in batches_of_mine(3, presence=np.ones(5, "float32")):
        step(batch)
    with pytest.raises(RuntimeError, match="had its release"):
        step(batch)


def test_a_pass_over_shuffled_data_takes_the_batches_of_the_last_one_again():
    model = trainer_of(Sampling.shuffle(5, 4, 20), steps=8)[1]
    trainer, forward = tfdp.PrivateTrainer(model, Sampling.shuffle(5, 4, 20), 8), forward_of(model)
    batches = list(batches_of_mine(4))
    for _ in range(2):
        for batch in trainer.one_pass(batches):
            trainer.apply(trainer.gradients(forward, batch))
    with pytest.raises(RuntimeError, match="had its release"):
        for batch in trainer.one_pass([batches[0], batches[0]]):
            trainer.gradients(forward, batch)


def test_a_pass_over_shuffled_data_is_taken_by_several_trainers():
    batches = list(batches_of_mine(4))
    for _ in range(2):
        sampling = Sampling.shuffle(5, 4, 20)
        model = trainer_of(sampling, steps=8)[1]
        for _ in range(2):
            trainer = tfdp.PrivateTrainer(model, sampling, 8)
            for batch in trainer.one_pass(batches):
                trainer.apply(trainer.gradients(forward_of(model), batch))
        assert model.optimizer.ledger.num_steps == 8


def test_a_full_batch_is_the_same_in_each_step():
    step, _ = trainer_of(Sampling.poisson(5, 5), steps=3)
    [batch] = batches_of_mine(1)
    for _ in range(3):
        step(batch)


def test_a_cache_is_known_to_the_next_trainer_and_new_draws_train():
    """A trainer for each epoch took the cached pass for new draws: 1.40 instead of 10.64."""
    sampler = tfdp.PoissonSampler(X, batch_size=5, steps=2)
    cached = sampler.as_dataset().cache()
    step, model = trainer_of(sampler)
    forward = forward_of(model)
    for batch in cached:
        step(batch)
    spent = tfdp.privacy_spent(model, 1e-3)
    again = tfdp.PrivateTrainer(model, sampler)
    with pytest.raises(RuntimeError, match="do not cache"):
        again.gradients(forward, next(iter(cached)))
    assert tfdp.privacy_spent(model, 1e-3) == spent
    for batch in sampler.as_dataset():
        again.apply(again.gradients(forward, batch))
    assert tfdp.privacy_spent(model, 1e-3) > spent


@KINDS
def test_a_draw_of_another_process_is_refused(kind):
    """It may have had its release there: a cache in a file gave 1.11 instead of 6.03."""
    sampler = tfdp.PoissonSampler(X, batch_size=5, steps=1)
    step, model = trainer_of(sampler)
    elsewhere = sampler.as_dataset().map(lambda b: {**b, "draw": b["draw"] - [0, 0, 0, 1, 0, 0, 0]})
    refused(kind, step, model, elsewhere, "another, which may have had its release there")


def with_rows(change):
    return lambda batch: {k: leaf if k == "draw" else change(leaf) for k, leaf in batch.items()}


views = with_rows(lambda leaf: tf.concat([leaf, leaf], 0))


@KINDS
@pytest.mark.parametrize("change", [views, with_rows(lambda leaf: leaf[1:])], ids=["more", "fewer"])
def test_a_batch_of_other_rows_than_were_drawn_is_refused(kind, change):
    """Two views of each row, as rows: a record moved the sum by 2 clips."""
    sampler = tfdp.PoissonSampler(X, batch_size=5, steps=1, pad_to_multiple=20)
    step, model = trainer_of(sampler)
    refused(kind, step, model, sampler.as_dataset().map(change), "the rows that were drawn")


INPUTS = {
    "views": lambda x: tf.repeat(x, 2, axis=0),
    "one of them": lambda x: x[:1],
}


@KINDS
@pytest.mark.parametrize("change", INPUTS)
@pytest.mark.parametrize("stated", [False, True], ids=["sampler", "stated"])
def test_a_batch_whose_inputs_have_other_rows_than_its_presence_is_refused(kind, change, stated):
    """Twenty views of the first record took the places of all: it moved the sum by 20 clips."""
    sampler = tfdp.PoissonSampler(X, batch_size=5, steps=1, pad_to_multiple=20)
    if stated:
        step, model = trainer_of(Sampling.poisson(20, 5))
        batch = {"x": tf.constant(X), "presence": tf.ones([20])}
        batches = tf.data.Dataset.from_tensors(batch)
    else:
        step, model = trainer_of(sampler)
        batches = sampler.as_dataset()
    changed = batches.map(lambda batch: {**batch, "x": INPUTS[change](batch["x"])})
    refused(kind, step, model, changed, "as many rows as `presence`")


class Foreign:
    """An array of another library."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype)


@pytest.mark.parametrize("kind", [tf.Variable, keras.Variable, Foreign])
def test_arrays_of_all_kinds_have_the_rows_of_presence(kind):
    """Four views of each row in a variable: a record moved the sum by 5.6 clips."""
    step, model = trainer_of(Sampling.poisson(40, 20))
    with pytest.raises(RuntimeError, match="as many rows as `presence`"):
        step({"x": kind(np.repeat(X, 4, axis=0)), "presence": tf.ones([20])})
    assert tfdp.privacy_spent(model, 1e-3) == 0.0
    batch = {"x": kind(X), "presence": tf.ones([20])}
    step(batch)
    with pytest.raises(RuntimeError, match="had its release"):
        step(batch)


def test_arrays_with_new_presence_are_the_same_draw():
    """Ten draws, each released four times with `tf.ones`, were reported as 0.55 (true: 4.36)."""
    step, model = trainer_of(Sampling.poisson(40, 20))
    x, y = tf.constant(X), np.ones((20, 1), "float32")
    step({"x": x, "y": y, "presence": tf.ones([20])})
    spent = tfdp.privacy_spent(model, 1e-3)
    with pytest.raises(RuntimeError, match="of a buffer that you fill anew pass a copy"):
        step({"x": x, "y": y, "presence": tf.ones([20])})
    assert tfdp.privacy_spent(model, 1e-3) == spent
    step({"x": tf.identity(x), "y": y, "presence": tf.ones([20])})  # a constant beside new rows


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"x": X.tolist()}, "of type float. Make arrays of lists"),
        ({"presence": np.ones(20, bool)}, "(?s)1.0 for examples.*bool"),
        ({"presence": np.ones((20, 1), "float32")}, r"(?s)shape \(b,\).*\(20, 1\)"),
        ({"temperature": 2.0}, "first axis is the example"),
        ({"temperature": tf.constant(2.0)}, "first axis is the example"),
    ],
    ids=["lists", "bool", "column", "number", "tensor"],
)
def test_batches_of_other_kinds_are_refused_with_the_remedy(change, match):
    step, model = trainer_of(Sampling.poisson(20, 5))
    with pytest.raises(ValueError, match=match):
        step({"x": X, "presence": np.ones(20, "float32"), **change})
    assert tfdp.privacy_spent(model, 1e-3) == 0.0


@KINDS
def test_one_draw_in_two_calls_of_a_graph_is_refused(kind):
    sampler = tfdp.PoissonSampler(X, batch_size=5, steps=1)
    step, model = trainer_of(sampler)

    def twice(batch):
        step(batch)
        step(batch)

    refused(kind, twice, model, sampler.as_dataset(), "had its release")


def test_batches_of_a_sampler_have_to_say_which_they_are():
    """Views that were made into batches without it were reported as 2.80 instead of 14.55."""
    sampler = tfdp.PoissonSampler(X, batch_size=5, steps=1)
    step, model = trainer_of(sampler)
    [batch] = sampler
    with pytest.raises(RuntimeError, match="(?s)without.*Keep it where you change a batch"):
        step({"x": batch["x"], "presence": batch["presence"]})
    assert tfdp.privacy_spent(model, 1e-3) == 0.0
    step({**batch, "x": 2 * batch["x"]})
    assert tfdp.privacy_spent(model, 1e-3) > 0.0


def test_a_compiled_step_after_the_budget_gives_nothing():
    sampler = tfdp.PoissonSampler(X, batch_size=5, steps=3)
    model = tfdp.make_private(keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)]))
    arguments = {"l2_norm_clip": 1.0, "epsilon": 2.0, "delta": 1e-3, "accountant": "rdp"}
    model.compile(tfdp.DPSGDOptimizer("sgd", **arguments), loss="mse")
    trainer, forward = tfdp.PrivateTrainer(model, sampler, steps=2), forward_of(model)
    step = tf.function(lambda batch: trainer.gradients(forward, batch), jit_compile=True)
    found = [np.concatenate([np.ravel(g) for g in step(batch)]) for batch in sampler.as_dataset()]
    assert [bool(np.all(np.isnan(g))) for g in found] == [False, False, True]


@KINDS
@pytest.mark.parametrize(
    "stated",
    [
        tfdp.PoissonSampler(np.ones((200, 4), "float32"), batch_size=5, steps=4),
        tfdp.PoissonSampler(X, batch_size=2, steps=4),
        tfdp.accounting.Sampling.poisson(200, 5),
        tfdp.accounting.Sampling.poisson(None, 5, sampling_rate=0.2),
    ],
    ids=["examples", "size", "statement", "rate"],
)
def test_draws_at_another_rate_than_the_trainer_was_told_are_refused(kind, stated):
    """Epsilon 28.4 was reported as 0.35 where two samplers had been taken for each other."""
    step, model = trainer_of(stated, steps=4)
    batches = tfdp.PoissonSampler(X, batch_size=5, steps=1).as_dataset()
    refused(kind, step, model, batches, "the sampler that the trainer was made with")


def test_a_statement_of_the_same_rate_takes_the_draws_of_a_sampler():
    stated = tfdp.accounting.Sampling.poisson(None, 5, sampling_rate=0.25)
    step, model = trainer_of(stated, steps=2)
    for batch in tfdp.PoissonSampler(X, batch_size=5, steps=2):
        step(batch)
    assert tfdp.privacy_spent(model, 1e-3) > 0.0


def test_batches_that_do_not_say_which_they_are_are_taken_by_the_word_of_who_made_them():
    step, model = trainer_of(tfdp.accounting.Sampling.poisson(200, 5), steps=2)
    step({"x": X, "presence": np.ones(20, "float32")})
    assert tfdp.privacy_spent(model, 1e-3) > 0.0


def test_every_iteration_counts_on():
    sampler = tfdp.PoissonSampler(X, batch_size=5, steps=3)
    draws = [batch["draw"].tolist() for _ in range(2) for batch in sampler]
    draws += [batch["draw"].numpy().tolist() for batch in sampler.as_dataset()]
    assert draws == sorted(draws) and len({tuple(draw) for draw in draws}) == 9
    assert {tuple(draw[:2]) for draw in draws} == {(20, 5)}
    assert sampler.as_dataset().element_spec == sampler.element_spec


def test_of_two_threads_that_take_one_draw_one_is_refused():
    sampler = tfdp.PoissonSampler(X, batch_size=5, steps=12)
    steps = [trainer_of(sampler)[0] for _ in range(2)]
    batches = iter(sampler)
    for step in steps:  # traced before threads meet
        step(next(batches))

    def taken(step, batch):
        try:
            step(batch)
        except RuntimeError as error:
            assert "had its release" in str(error)
            return False
        return True

    with ThreadPoolExecutor(2) as threads:
        for batch in batches:
            assert sum(threads.map(taken, steps, [batch] * 2)) == 1
