"""`fit` with users and with copies of examples: against one unit at a time; stated, refused."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tests import oracle
from tf_lowrank_dp.accounting import LedgerEntry, PrivacyLedger, Sampling
from tf_lowrank_dp.sampling import UserSampler
from tf_lowrank_dp.workers import Workers, join

IDS = np.array([4, 1, 4, 9, 4, 9, 2, 2, 7, 3])
USERS, RATE, CLIP = 6, 0.3, 0.4
X = np.random.default_rng(0).normal(size=(10, 5, 4)).astype("float32")
Y = np.random.default_rng(1).integers(0, 3, 10).astype("int32")
EXACT = {"l2_norm_clip": CLIP, "noise_multiplier": 0.0}
NOISY = {"l2_norm_clip": CLIP, "noise_multiplier": 1.0, "delta": 1e-3, "accountant": "rdp"}


def make_model():
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            keras.Input((5, 4)),
            keras.layers.Conv1D(6, 3, padding="same", activation="relu", name="conv"),
            keras.layers.LSTM(4, name="lstm"),
            keras.layers.Dense(3, name="head"),
        ]
    )


def small_model():
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((5, 4)), keras.layers.Flatten(), keras.layers.Dense(3)])


def compiled(privacy, make=make_model, optimizer=tfdp.DPSGDOptimizer, parts=None, **arguments):
    model = tfdp.make_private(make(), microbatch_size=parts)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    arguments = {"jit_compile": False, **arguments}
    model.compile(optimizer(keras.optimizers.SGD(RATE), **privacy), loss=loss, **arguments)
    return model


def losses(model):
    return lambda batch: tf.nn.sparse_softmax_cross_entropy_with_logits(batch[1], model(batch[0]))


def by_users(model, x=X, rows_per_unit=3, batch_size=USERS, **arguments):
    return model.fit(
        x, Y, unit_ids=IDS, rows_per_unit=rows_per_unit, batch_size=batch_size, verbose=0,
        **arguments,
    )  # fmt: skip


def step_of_units(model, units, x=X, groups=None):
    """One step without noise: each unit's mean gradient, in float64, clipped, added up."""
    gradients = oracle.per_example_gradients(model, losses(model), (x, Y))
    means = [np.stack([g[rows].mean(0) for rows in units]) for g in gradients]
    groups = [range(len(means))] if groups is None else groups
    for group in groups:
        norms = oracle.norms([means[i] for i in group])
        factors = np.minimum(1.0, CLIP / np.sqrt(len(groups)) / norms)
        for i in group:
            v = model.trainable_variables[i]
            v.assign_sub(RATE * np.nansum(factors.reshape([-1] + [1] * (means[i].ndim - 1))
                                          * means[i], axis=0) / len(units))  # fmt: skip


def assert_same(found, expected):
    for v, w in zip(found.trainable_variables, expected.trainable_variables, strict=True):
        np.testing.assert_allclose(v, w, rtol=1e-4, atol=2e-5, err_msg=v.path)


OF_USERS = [np.flatnonzero(user == IDS) for user in np.unique(IDS)]
LAYERS = [range(2), range(2, 5), range(5, 7)]
WAYS = {
    "graph": ({}, {}),
    "xla": ({}, {"jit_compile": True}),
    "microbatches": ({}, {"parts": 7}),
    "per layer": ({"clipping": "per_layer"}, {}),
    "vectorized": ({"gradient_method": "vectorized"}, {}),
}


@pytest.mark.parametrize("way", WAYS)
def test_without_noise_a_step_is_that_of_one_user_at_a_time(way):
    privacy, arguments = WAYS[way]
    make = small_model if way == "vectorized" else make_model
    model, exact = compiled({**EXACT, **privacy}, make, **arguments), make()
    by_users(model, epochs=2)
    for _ in range(2):
        step_of_units(exact, OF_USERS, groups=LAYERS if way == "per layer" else None)
    assert_same(model, exact)


def test_a_row_that_is_no_number_costs_its_user_and_no_other():
    x = X.copy()
    x[5, 2] = np.nan
    model, exact = compiled(EXACT, small_model), small_model()
    by_users(model, x)
    step_of_units(exact, OF_USERS, x)
    others = [rows for rows in OF_USERS if 5 not in rows]
    assert len(others) == USERS - 1
    again = small_model()
    step_of_units(again, others)
    for v, w in zip(again.trainable_variables, small_model().trainable_variables, strict=True):
        v.assign(w + (v - w) * (USERS - 1) / USERS)  # divided by the expected number of users
    assert_same(model, again)


def test_a_user_of_more_rows_than_are_taken_counts_once():
    """Rows of one user are alike here, so any of them will do."""
    x = X[np.searchsorted(np.unique(IDS), IDS)]
    y = Y[np.searchsorted(np.unique(IDS), IDS)]
    model, exact = compiled(EXACT, small_model), small_model()
    model.fit(x, y, unit_ids=IDS, rows_per_unit=1, batch_size=USERS, verbose=0)
    firsts = [rows[:1] for rows in OF_USERS]
    gradients = oracle.per_example_gradients(exact, losses(exact), (x, y))
    norms = oracle.norms(gradients)
    for v, g in zip(exact.trainable_variables, gradients, strict=True):
        total = sum(min(1, CLIP / norms[i]) * g[i] for [i] in firsts)
        v.assign_sub(RATE * total / USERS)
    assert_same(model, exact)


def test_copies_without_random_numbers_train_as_one():
    once, four = compiled(EXACT, small_model), compiled(EXACT, small_model)
    once.fit(X, Y, batch_size=10, verbose=0)
    four.fit(X, Y, batch_size=10, verbose=0, multiplicity=4)
    assert_same(four, once)
    assert four.optimizer.ledger.entries[0].sampling == once.optimizer.ledger.entries[0].sampling


class Sum(keras.losses.Loss):
    """The gradient of a linear model's weights is the input."""

    def call(self, y_true, y_pred):
        return -keras.ops.sum(y_pred, axis=-1)


@pytest.mark.parametrize("where", ["function", "layer", "in the model"])
@pytest.mark.parametrize("multiplicity", [1, 8])
def test_the_copies_of_an_example_have_random_numbers_of_their_own(where, multiplicity):
    """The mean of `n` inputs with noise has `1 / n` of its variance."""
    width, rows = 4000, 5
    noise = keras.layers.GaussianNoise(1.0)
    dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
    augment = {"function": lambda x: x + tf.random.normal(tf.shape(x)), "layer": noise}.get(where)
    layers = [keras.Input((width,)), *[noise] * (where == "in the model"), dense]
    model = tfdp.make_private(keras.Sequential(layers))
    optimizer = tfdp.DPSGDOptimizer(
        keras.optimizers.SGD(1.0), l2_norm_clip=float("inf"), noise_multiplier=0.0
    )
    model.compile(optimizer, loss=Sum(), jit_compile=False)
    x = np.zeros((rows, width), "float32")
    model.fit(x, x[:, :1], batch_size=rows, verbose=0, augment=augment, multiplicity=multiplicity)
    variance = np.var(dense.kernel.numpy()) * rows * multiplicity
    assert variance == pytest.approx(1.0, abs=5 * np.sqrt(2 / width))


def test_what_augments_may_not_join_examples():
    model = compiled(EXACT, small_model)
    with pytest.raises(tfdp.UnsupportedModelError, match="treat each example by itself"):
        model.fit(X, Y, batch_size=5, verbose=0, augment=lambda x: x - tf.reduce_mean(x, 0))


def test_another_augmentation_is_looked_at_and_used():
    model = compiled(EXACT, small_model)
    model.fit(X, Y, batch_size=10, verbose=0, augment=lambda x: 2.0 * x)
    with pytest.raises(tfdp.UnsupportedModelError, match="treat each example by itself"):
        model.fit(X, Y, batch_size=10, verbose=0, augment=lambda x: x[::-1])
    exact = small_model()
    model.set_weights(exact.get_weights())
    model.fit(X, Y, batch_size=10, verbose=0, augment=lambda x: 3.0 * x)
    step_of_units(exact, np.arange(10)[:, None], 3.0 * X)
    assert_same(model, exact)


def test_the_ledger_and_the_statement_are_about_users(tmp_path):
    model = compiled(NOISY, small_model)
    by_users(model, batch_size=2, epochs=2)
    ledger = PrivacyLedger()
    sampling = Sampling("poisson", USERS, 2, unit="user", drawn_by="library")
    ledger.append(LedgerEntry(sampling, NOISY["noise_multiplier"], steps=6))
    assert tfdp.privacy_spent(model, 1e-3) == ledger.epsilon(1e-3, accountant="rdp")
    text = " ".join(str(tfdp.privacy_statement(model)).split())
    assert "differ by adding or removing one user with all examples of theirs" in text
    assert "size 2 of 6 users" in text and "It protects users" in text
    assert "single examples" not in text
    model.save(tmp_path / "model.keras")
    loaded = tfdp.make_private(keras.models.load_model(tmp_path / "model.keras"))
    assert loaded.optimizer.ledger.entries[0].sampling == sampling
    with pytest.raises(ValueError, match="(?s)Expected one unit of privacy.*Received"):
        loaded.fit(X, Y, batch_size=2, verbose=0)


def test_other_numbers_of_rows_or_copies_in_another_fit_are_trained():
    model = compiled(NOISY, small_model)
    for rows in (2, 3, 2):
        by_users(model, rows_per_unit=rows)
    assert model.optimizer.ledger.num_steps == 3
    copies = compiled(NOISY, small_model)
    for multiplicity in (2, 3):
        augment = keras.layers.GaussianNoise(0.1)
        copies.fit(X, Y, batch_size=5, augment=augment, multiplicity=multiplicity, verbose=0)
    assert copies.optimizer.ledger.num_steps == 4


def test_no_epsilon_is_stated_for_users_and_examples_together():
    entries = [
        LedgerEntry(Sampling.poisson(100, 10, unit=unit), 1.0, steps=5)
        for unit in ("example", "user")
    ]
    ledger = PrivacyLedger(entries)
    assert ledger.epsilon(1e-5) == np.inf
    assert all(np.isfinite(PrivacyLedger([entry]).epsilon(1e-5)) for entry in entries)


def test_metrics_see_the_rows_that_count():
    model = compiled({**EXACT, "l2_norm_clip": 1e-6}, small_model, metrics=["accuracy"])
    history = by_users(model).history
    exact = np.mean(losses(small_model())((X, Y)))
    assert history["loss"][0] == pytest.approx(exact, rel=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"unit_ids": IDS}, "rows_per_unit"),
        ({"rows_per_unit": 2}, "unit_ids"),
        ({"unit_ids": IDS, "rows_per_unit": 2, "validation_split": 0.2}, "validation_data"),
        ({"unit_ids": IDS.astype(float), "rows_per_unit": 2}, "unit_ids"),
        ({"multiplicity": 0}, "multiplicity"),
    ],
)
def test_what_makes_no_units_is_refused(arguments, message):
    with pytest.raises(ValueError, match=f"(?s)Expected.*{message}.*Received"):
        compiled(EXACT, small_model).fit(X, Y, batch_size=2, verbose=0, **arguments)


@pytest.mark.parametrize("make", ["sampler", "records", "data set"])
def test_users_are_drawn_of_arrays_only(make):
    data = {
        "sampler": lambda: tfdp.PoissonSampler(X, Y, batch_size=2),
        "records": lambda: tfdp.Records((X, Y)),
        "data set": lambda: tf.data.Dataset.from_tensor_slices((X, Y)).batch(2),
    }[make]()
    with pytest.raises(ValueError, match="(?s)Expected arrays with unit_ids.*Received"):
        compiled(EXACT, small_model).fit(data, unit_ids=IDS, rows_per_unit=2, verbose=0)


def test_the_second_pass_of_reweight_is_refused():
    model = compiled({**EXACT, "gradient_method": "reweight"}, small_model)
    with pytest.raises(ValueError, match="(?s)Expected another gradient_method.*Received"):
        model.fit(X, Y, batch_size=2, verbose=0, multiplicity=2)


def test_users_of_another_sampler_are_refused_where_rows_are_clipped_or_shared(monkeypatch):
    sampler = UserSampler(X, Y, unit_ids=IDS, rows_per_unit=3, batch_size=USERS, steps=1)
    model = compiled(NOISY, make=small_model)
    for users in (sampler, Sampling.poisson(6, 6, unit="user")):
        with pytest.raises(ValueError, match="(?s)Expected a sampler of examples.*one of users"):
            tfdp.PrivateTrainer(model, users, steps=1)
    assert tfdp.privacy_spent(model) == 0.0

    class Two(Workers):
        count = 2

    monkeypatch.setattr(join, "_joined", [Two()])
    shared = tfdp.make_private(small_model(), workers=join.joined())
    shared.compile(tfdp.DPSGDOptimizer("sgd", **NOISY), loss="mse")
    with pytest.raises(ValueError, match="(?s)Expected one process for units.*several workers"):
        shared.fit(sampler)


def test_the_statement_warns_where_users_were_told_apart_in_two_ways():
    model = compiled(NOISY, make=small_model)
    by_users(model)
    assert "told apart in several ways" not in tfdp.privacy_statement(model)
    model.fit(X, Y, unit_ids=np.arange(10), rows_per_unit=1, batch_size=2, verbose=0)
    text = " ".join(tfdp.privacy_statement(model).split())
    assert "told apart in several ways, as 6 to 10 of them" in text


def test_a_run_that_never_began_is_no_other_way_and_no_data_set():
    model = compiled(NOISY, make=small_model)
    spent = tfdp.PrivacyBudget(epsilon=1e-4, delta=1e-3)
    with pytest.raises(tfdp.PrivacyBudgetExceededError):
        many = np.concatenate([X] * 10), np.concatenate([Y] * 10)
        model.fit(*many, batch_size=6, callbacks=[spent], verbose=0)
    by_users(model)
    text = " ".join(tfdp.privacy_statement(model, delta=0.1).split())
    assert "0 steps" in text  # of the run that was refused
    assert "told apart in several ways" not in text and "number of examples =" not in text


def test_rows_per_unit_above_the_number_of_rows_is_that_number():
    model = compiled(EXACT, make=small_model)
    by_users(model, rows_per_unit=10**9)
    other = compiled(EXACT, make=small_model)
    by_users(other, rows_per_unit=10)
    for ours, theirs in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_an_augmentation_that_was_adapted_is_warned_of_and_stated():
    scaled = keras.layers.Normalization(name="scaled")
    scaled.adapt(X)
    model = compiled(NOISY, make=small_model)
    with pytest.warns(UserWarning, match=r"Expected preprocessing .*'scaled'"):
        model.fit(X, Y, batch_size=4, augment=scaled, multiplicity=2, verbose=0)
    assert "the state of scaled was not given" in " ".join(tfdp.privacy_statement(model).split())
