"""GEP through `fit`, saving, loading, XLA, microbatches and inner optimizers.

The contract of `test_optimizers.py`, for an optimizer with two clips and public data.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tests.release.gep_models import (
    CLASSES,
    FREE,
    PUBLIC,
    compiled,
    gep_model,
    gep_optimizer,
    images,
    loss,
    losses_of,
)
from tf_lowrank_dp.layers.parameters import describe_parameters

ROWS, BATCH, DELTA = 24, 8, 1e-3
NOISY = {"noise_multiplier": 1.3, "embedding_clip": 0.7, "residual_clip": 0.4, "delta": DELTA}
CLIPPED = {"embedding_clip": 0.7, "residual_clip": 0.4, "noise_multiplier": 0.0}
OPTIONS = {
    "gep": {},
    "random labels": {"public_labels": "random"},
    "b-gep": {"residual": False},
    "one group": {"num_groups": 1},
    "kept basis": {"refresh_every": 2},
}
INNER = {
    "momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.9),
    "adam": lambda: keras.optimizers.Adam(0.01),
    "adamw": lambda: keras.optimizers.AdamW(0.01, weight_decay=0.1),
}
each_option = pytest.mark.parametrize("name", OPTIONS)


def fit(model, epochs=1, **arguments):
    return model.fit(*images(ROWS), batch_size=BATCH, epochs=epochs, verbose=0, **arguments)


def weights(model):
    return [np.array(v) for v in model.trainable_variables]


def assert_close(model, other, tolerance):
    for one, two in zip(weights(model), weights(other), strict=True):
        np.testing.assert_allclose(one, two, rtol=tolerance, atol=tolerance)


@each_option
def test_fit_saves_loads_and_continues_with_its_ledger_and_new_public_data(name, tmp_path):
    model = compiled(gep_optimizer("adam", **NOISY, **OPTIONS[name]))
    fit(model)
    assert all(np.all(np.isfinite(w)) for w in weights(model))
    statement, spent = tfdp.privacy_statement(model), tfdp.privacy_spent(model, DELTA)
    assert ("B-GEP" if name == "b-gep" else "GEP") in str(statement) and spent > 0

    model.save(tmp_path / "model.keras")
    loaded = tfdp.make_private(keras.models.load_model(tmp_path / "model.keras"))
    assert type(loaded.optimizer) is tfdp.GEPOptimizer
    assert loaded.optimizer.get_config() == model.optimizer.get_config()
    assert loaded.optimizer.public_data is None
    for one, two in zip(weights(model), weights(loaded), strict=True):
        np.testing.assert_array_equal(one, two)
    with pytest.raises(ValueError, match="(?s)Expected public data.*set_public_data"):
        fit(loaded)
    loaded.optimizer.set_public_data(*images(PUBLIC, seed=100))
    fit(loaded)
    assert loaded.optimizer.ledger.num_steps == 6
    assert tfdp.privacy_spent(loaded, DELTA) > spent


def test_the_accounting_is_that_of_dpsgd_with_the_same_noise_multiplier():
    spent = []
    for optimizer in (
        gep_optimizer(**NOISY),
        gep_optimizer(**NOISY, residual=False),
        tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.3),
    ):
        model = compiled(optimizer)
        fit(model)
        spent.append(tfdp.privacy_spent(model, DELTA))
    assert spent[0] == spent[1] == spent[2]


def test_fit_under_xla_equals_fit_in_graph_mode():
    models = [
        compiled(gep_optimizer(**CLIPPED, **OPTIONS["kept basis"]), 5, jit_compile=jit)
        for jit in (False, True)
    ]
    for model in models:
        fit(model)
    assert_close(*models, 1e-3)


def test_fit_with_microbatches_equals_fit_without():
    whole, split = (compiled(gep_optimizer(**CLIPPED), size) for size in (None, 5))
    for model in (whole, split):
        fit(model)
    assert_close(whole, split, 1e-3)


def test_eager_steps_and_several_steps_per_execution_equal_single_steps():
    models = [
        compiled(gep_optimizer(**CLIPPED, **OPTIONS["kept basis"]), **arguments)
        for arguments in ({}, {"steps_per_execution": 3}, {"run_eagerly": True})
    ]
    for model in models:
        fit(model, epochs=2)
    assert_close(models[0], models[1], 1e-3)
    assert_close(models[0], models[2], 1e-3)


@pytest.mark.parametrize("inner", INNER)
def test_without_clips_and_noise_the_inner_optimizer_sees_the_plain_gradient(inner):
    ordinary, own = gep_model(), compiled(gep_optimizer(INNER[inner](), **FREE))
    ordinary.compile(INNER[inner](), loss=loss(), jit_compile=False)
    batches = tf.data.Dataset.from_tensor_slices(images(ROWS)).batch(BATCH, drop_remainder=True)
    ordinary.fit(batches, epochs=2, verbose=0, shuffle=False)
    own.fit(batches, epochs=2, verbose=0, sampling="shuffle")
    assert_close(ordinary, own, 1e-3)


def test_config_round_trip_keeps_everything_but_seed_and_public_data():
    optimizer = gep_optimizer(
        keras.optimizers.Adam(0.5), gradient_scale={"head": 0.1}, groups=[["conv"], ["e"]], **NOISY
    )
    config = keras.optimizers.serialize(optimizer)
    assert "public" not in str(config) and len(str(config)) < 2000
    restored = keras.optimizers.deserialize(config)
    assert restored.get_config() == optimizer.get_config()
    assert restored.seed is None and restored.public_data is None
    assert restored.groups == [["conv"], ["e"]]


@pytest.mark.parametrize("form", ["(n,)", "(n, 1)", "one-hot"])
def test_random_labels_take_the_form_of_the_private_targets(form):
    model = tfdp.make_private(gep_model())
    x, y = images(ROWS)
    categorical = form == "one-hot"
    if categorical:
        y = np.eye(CLASSES, dtype=np.float32)[y]
    elif form == "(n, 1)":
        y = y[:, None]
    name = "CategoricalCrossentropy" if categorical else "SparseCategoricalCrossentropy"
    model.compile(
        gep_optimizer(public_labels="random", **NOISY),
        loss=getattr(keras.losses, name)(from_logits=True),
        jit_compile=False,
    )
    model.fit(x, y, batch_size=BATCH, verbose=0)
    assert all(np.all(np.isfinite(w)) for w in weights(model))


def test_public_data_may_be_a_dataset_of_batches():
    x, y = images(PUBLIC, seed=100)
    from_arrays = gep_optimizer(**NOISY)
    from_dataset = gep_optimizer(
        **NOISY, public_data=tf.data.Dataset.from_tensor_slices(x).batch(7), public_labels=y
    )
    np.testing.assert_array_equal(
        from_arrays.public_data.features, from_dataset.public_data.features
    )


def test_other_public_data_begin_a_new_run():
    model = compiled(gep_optimizer(**NOISY))
    fit(model)
    fit(model)
    assert len(model.optimizer.ledger.entries) == 1
    model.optimizer.set_public_data(*images(PUBLIC + 3, seed=200))
    fit(model)
    assert len(model.optimizer.ledger.entries) == 2


def test_public_rows_among_the_private_ones_are_warned_of():
    x, y = images(ROWS)
    model = compiled(gep_optimizer(**NOISY, public_data=np.float64(x[:5]), public_labels=y[:5]))
    with pytest.warns(UserWarning, match="(?s)Expected public data.*Received: private examples"):
        fit(model)


@pytest.mark.parametrize("start", ["fit", "trainer"])
def test_public_rows_in_a_sampler_are_warned_of(start):
    x, y = images(24)
    model = compiled(gep_optimizer(**NOISY, public_data=x[:5], public_labels=y[:5]))
    sampler = tfdp.PoissonSampler(x, y, batch_size=8, steps=1)
    with pytest.warns(UserWarning, match="(?s)Expected public data.*Received: private examples"):
        if start == "fit":
            model.fit(sampler, verbose=0)
        else:
            tfdp.PrivateTrainer(model, sampler)


def test_other_public_rows_are_not_warned_of(recwarn):
    fit(compiled(gep_optimizer(**NOISY)))
    assert not [w for w in recwarn if "public data" in str(w.message)]


def test_custom_loops_use_the_compiled_loss_for_public_examples():
    model = compiled(gep_optimizer(**NOISY))
    sampler = tfdp.PoissonSampler(*images(ROWS), batch_size=BATCH, steps=2)
    trainer = tfdp.PrivateTrainer(model, sampler)
    losses = losses_of(model)
    for batch in sampler:
        trainer.apply(trainer.gradients(lambda part: (losses(part), ()), batch))
    assert model.optimizer.ledger.num_steps == 2
    assert all(np.all(np.isfinite(w)) for w in weights(model))


@pytest.mark.parametrize("form", [list, dict])
def test_models_of_several_outputs_train(form):
    x, y = images(ROWS)
    x = x.reshape(ROWS, -1)
    inputs = keras.Input(x.shape[1:])
    outputs = {"head": keras.layers.Dense(CLASSES, name="head")(inputs)}
    outputs["rest"] = keras.layers.Dense(2, name="rest")(inputs)
    targets, losses = {"head": y, "rest": x[:, :2]}, {"head": loss(), "rest": "mse"}
    if form is list:
        outputs, targets, losses = ([*each.values()] for each in (outputs, targets, losses))
    public = tf.nest.map_structure(lambda t: t[:9], targets)
    model = tfdp.make_private(keras.Model(inputs, outputs))
    own = {**NOISY, "public_data": x[:9] + 1.0, "public_labels": public, "num_bases": 3}
    model.compile(tfdp.GEPOptimizer("sgd", **own), losses, jit_compile=False)
    before = weights(model)
    model.fit(x, targets, batch_size=BATCH, verbose=0)
    assert not any(np.array_equal(w, b) for w, b in zip(weights(model), before, strict=True))


def test_without_a_run_there_is_a_space_but_no_basis():
    optimizer = gep_optimizer(**NOISY)
    context = optimizer.release_context(describe_parameters(compiled(optimizer)), lambda shapes: [])
    with pytest.raises(ValueError, match="Call model.fit first"):
        optimizer.release_space(context).refresh()


@pytest.mark.parametrize("in_graph", [False, True])
def test_the_basis_holds_nothing_that_a_loop_has_computed_of_its_batch(in_graph):
    """The compiled loss may use what a step has left; a record moved 5.2 clips for 2."""
    x, y = np.random.default_rng(0).normal(size=(2, 24, 3)).astype("float32")
    public = np.random.default_rng(1).normal(size=(16, 3)).astype("float32")

    def released(x):
        keras.utils.set_random_seed(0)
        left = {"centre": tf.ones([1, 3])}

        def loss(y_true, y_pred):
            return keras.losses.mean_squared_error(left["centre"] * tf.ones_like(y_pred), y_pred)

        model = tfdp.make_private(keras.Sequential([keras.Input((3,)), keras.layers.Dense(3)]))
        own = {"public_data": public, "public_labels": public, "num_bases": 2, "residual": False}
        inner = keras.optimizers.SGD(1.0)
        own |= {"embedding_clip": 1.0, "noise_multiplier": 1e-4, "seed": 3}
        model.compile(tfdp.GEPOptimizer(inner, **own), loss, jit_compile=False)
        sampler = tfdp.PoissonSampler(x, y, batch_size=24, steps=1)
        trainer = tfdp.PrivateTrainer(model, sampler)

        def errors(part):
            return tf.reduce_sum((model(part["x"]) - part["y"]) ** 2, -1), ()

        def step(batch):
            left["centre"] = tf.reduce_mean(batch["x"], axis=0, keepdims=True)
            return trainer.gradients(errors, batch)

        step = tf.function(step, autograph=False) if in_graph else step
        [batch] = sampler.as_dataset()
        return 24 * np.concatenate([np.ravel(gradient) for gradient in step(batch)])

    other = x.copy()
    other[0] = [900.0, -500.0, -900.0]
    assert np.linalg.norm(released(x) - released(other)) <= 2.001


BAD = {
    "l2_norm_clip": 1.0,
    "clipping": "per_layer",
    "num_bases": 0,
    "num_groups": 0,
    "groups": ["conv"],
    "power_iterations": 0,
    "refresh_every": 0,
    "num_classes": 1,
    "embedding_clip": -1.0,
    "residual_clip": float("inf"),
    "public_data": np.zeros((0, 8, 8, 1)),
    "public_labels": np.zeros(3),
}


@pytest.mark.parametrize("name", BAD)
def test_wrong_arguments_are_refused_by_name(name):
    with pytest.raises(ValueError, match=f"(?s)Expected.*{name}.*Received:.*\\."):
        gep_optimizer(**{**NOISY, name: BAD[name]})


def test_random_labels_need_the_number_of_classes():
    with pytest.raises(ValueError, match="(?s)Expected num_classes.*Received"):
        gep_optimizer(**NOISY, public_labels="random", num_classes=None)


def test_num_groups_and_groups_exclude_each_other():
    with pytest.raises(ValueError, match="(?s)Expected num_groups or groups.*Received"):
        gep_optimizer(**NOISY, num_groups=2, groups=[["conv"], ["e"]])


def test_ordinary_training_steps_are_refused():
    model = gep_model()
    model.compile(gep_optimizer(**NOISY), loss="mse", jit_compile=False)
    with pytest.raises(tfdp.NotPrivateError):
        model.fit(np.zeros((4, 8, 8, 1)), np.zeros((4, 3)), verbose=0)


def test_other_kinds_of_layers_see_the_plain_gradient_without_clips_and_noise():
    """Tables, recurrences and attention, and features that are nested."""
    generator = np.random.default_rng(0)

    def features(size):
        ids = generator.integers(0, 11, (size, 4)).astype(np.int32)
        return {"ids": ids, "age": generator.normal(size=(size, 1)).astype(np.float32)}

    def text_model():
        keras.utils.set_random_seed(0)
        ids, age = keras.Input((4,), dtype="int32", name="ids"), keras.Input((1,), name="age")
        x = keras.layers.Embedding(11, 6, name="table")(ids)
        x = keras.layers.MultiHeadAttention(2, 3, name="attention")(x, x)
        x = keras.layers.LayerNormalization(name="norm")(keras.layers.LSTM(5, name="lstm")(x))
        x = keras.layers.Concatenate()([x, age])
        return keras.Model({"ids": ids, "age": age}, keras.layers.Dense(CLASSES, name="head")(x))

    x, (_, y), public = features(ROWS), images(ROWS), features(PUBLIC)
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH, drop_remainder=True)
    ordinary, own = text_model(), tfdp.make_private(text_model())
    optimizer = gep_optimizer(public_data=public, public_labels="random", **FREE)
    for model, chosen in ((ordinary, "sgd"), (own, optimizer)):
        model.compile(chosen, loss=loss(), jit_compile=False)
    ordinary.fit(batches, epochs=2, verbose=0, shuffle=False)
    own.fit(batches, epochs=2, verbose=0, sampling="shuffle")
    assert_close(ordinary, own, 1e-3)


def test_a_fit_with_epsilon_and_delta_spends_what_was_asked_for():
    budget = {"epsilon": 5.0, "delta": DELTA, "accountant": "rdp", "noise_multiplier": None}
    model = compiled(gep_optimizer(**budget, embedding_clip=0.7, residual_clip=0.4))
    fit(model, epochs=2)
    assert 4.9 < tfdp.privacy_spent(model, DELTA) <= 5.0


def test_defaults_are_those_that_the_documents_state():
    config = tfdp.GEPOptimizer("sgd", noise_multiplier=1.0).get_config()
    stated = {
        "num_bases": 1000,
        "num_groups": None,
        "groups": None,
        "power_iterations": 1,
        "embedding_clip": 5.0,
        "residual_clip": 2.0,
        "refresh_every": 1,
        "residual": True,
        "num_classes": None,
    }
    assert {name: config[name] for name in stated} == stated
