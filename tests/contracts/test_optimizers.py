"""Every optimizer through `fit`, saving, loading, microbatches and inner optimizers."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tests.contracts.optimizer_cases import LSG, OPTIMIZER_CASES, RGP, SPARSE
from tests.oracle import relative_error
from tests.release.engines import batch_for, mixed_model, private_gradients
from tests.release.references import float64

ROWS, BATCH, DELTA = 24, 8, 1e-3
CASES = {case.name: case for case in OPTIMIZER_CASES}
NOISY = {"l2_norm_clip": 0.7, "noise_multiplier": 1.3, "delta": DELTA, "accountant": "rdp"}
CLIPPED = {"l2_norm_clip": 0.7, "noise_multiplier": 0.0, "seed": 5}
INNER = {
    "momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.9),
    "adam": lambda: keras.optimizers.Adam(0.01),
    "adamw": lambda: keras.optimizers.AdamW(0.01, weight_decay=0.1),
    "lion": lambda: keras.optimizers.Lion(0.003),
}
each_optimizer = pytest.mark.parametrize("case", OPTIMIZER_CASES, ids=lambda case: case.name)


def make_model(seed=0):
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(12, activation="tanh", name="hidden"),
            keras.layers.Dense(3, name="head"),
        ]
    )


def make_data():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(ROWS, 8)).astype("float32")
    return x, generator.integers(0, 3, ROWS).astype("int32")


def compiled(optimizer, microbatch_size=None, seed=0, **arguments):
    model = tfdp.make_private(make_model(seed), microbatch_size=microbatch_size)
    arguments.setdefault("jit_compile", False)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss=loss, **arguments)
    return model


def fit(model, epochs=1):
    return model.fit(*make_data(), batch_size=BATCH, epochs=epochs, verbose=0)


def same_batches():
    return tf.data.Dataset.from_tensor_slices(make_data()).batch(BATCH, drop_remainder=True)


def weights(model):
    return float64(model.trainable_variables)


def assert_close(model, other, tolerance):
    for v, w in zip(model.trainable_variables, other.trainable_variables, strict=True):
        np.testing.assert_allclose(v, w, rtol=tolerance, atol=tolerance, err_msg=v.path)


@each_optimizer
def test_fit_saves_loads_and_continues_with_its_ledger_and_initial_weights(case, tmp_path):
    model = compiled(case.optimizer("adam", **NOISY))
    before = weights(model)
    fit(model)
    after = weights(model)
    assert all(np.all(np.isfinite(w)) for w in after)
    assert all(np.any(w != v) for v, w in zip(before, after, strict=True))
    statement = tfdp.privacy_statement(model)
    spent = tfdp.privacy_spent(model, DELTA)
    assert model.optimizer.algorithm.name in str(statement) and spent > 0

    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    tfdp.make_private(loaded)
    assert type(loaded.optimizer) is case.make
    assert loaded.optimizer.get_config() == model.optimizer.get_config()
    assert loaded.optimizer.ledger.num_steps == 3
    assert tfdp.privacy_spent(loaded, DELTA) == pytest.approx(spent)
    for w, loaded_w in zip(after, weights(loaded), strict=True):
        np.testing.assert_array_equal(w, loaded_w)
    initial = getattr(loaded.optimizer, "initial_weights", {})
    kept = case.name in ("rgp_history", "rgp_left", "lsg_history")
    assert sorted(initial) == ([0] if kept else [])

    fit(loaded)
    assert loaded.optimizer.ledger.num_steps == 6 and int(loaded.optimizer.iterations) == 6
    assert tfdp.privacy_spent(loaded, DELTA) > spent
    for index, value in loaded.optimizer.initial_weights.items() if kept else ():
        np.testing.assert_array_equal(value, before[index])  # W_0 of the first fit


@pytest.mark.parametrize("name", ["rgp_history", "lsg_start_step"])
def test_fit_under_xla_equals_fit_in_graph_mode(name):
    # Without noise: XLA's sums round differently, which carriers amplify a little.
    models = [
        compiled(CASES[name].optimizer("sgd", **CLIPPED), jit_compile=jit) for jit in (False, True)
    ]
    for model in models:
        fit(model)
    assert_close(*models, 1e-3)


@each_optimizer
def test_config_round_trip_keeps_everything_but_the_seed(case):
    optimizer = case.optimizer(
        keras.optimizers.Adam(0.5),
        clipping="per_layer",
        gradient_scale={"head": 0.1},
        seed=123454321,
        **NOISY,
    )
    config = keras.optimizers.serialize(optimizer)
    assert "123454321" not in str(config)
    restored = keras.optimizers.deserialize(config)
    assert type(restored) is case.make and restored.seed is None
    assert restored.get_config() == optimizer.get_config()
    for name, value in case.arguments.items():
        assert getattr(restored, name) == value


def step_of(case, microbatch_size=None, **arguments):
    """The private sums of one step on nine records, one of them absent."""
    model = mixed_model()
    optimizer = case.optimizer(**CLIPPED, **arguments)
    presence = np.array([1, 1, 0, 1, 1, 1, 1, 1, 1], np.float32)
    return private_gradients(
        optimizer, model, batch_for(model, 9), presence=presence, microbatch_size=microbatch_size
    )


def assert_same_step(found, expected):
    scale = max(np.max(np.abs(tensor)) for tensor in expected)
    for tensor, reference in zip(found, expected, strict=True):
        assert relative_error(tensor, reference, scale) <= 1e-3


@each_optimizer
def test_microbatches_change_no_result_but_rounding(case):
    assert_same_step(step_of(case, microbatch_size=4), step_of(case))


def test_fit_with_microbatches_equals_fit_without():
    whole, split = (
        compiled(CASES["lsg"].optimizer("sgd", **CLIPPED), microbatch_size=n) for n in (None, 3)
    )
    for model in (whole, split):
        fit(model)
    assert_close(whole, split, 1e-3)


METHODS = [
    ("rgp_weights", "reweight"),
    ("lsg", "reweight"),
    ("sparse_weight", "reweight"),
    ("lsg", "vectorized"),
    ("sparse_neuron", "loop"),
]


@pytest.mark.parametrize(("name", "method"), METHODS)
def test_gradient_methods_give_the_same_step(name, method):
    case = CASES[name]
    assert_same_step(step_of(case, gradient_method=method), step_of(case))


# Every optimizer once, every inner optimizer twice or more.
PAIRS = list(zip(CASES, [*INNER] * 4, strict=False))


@pytest.mark.parametrize(("name", "inner"), PAIRS, ids=lambda value: value)
def test_inner_optimizers_see_the_whole_gradient_where_nothing_is_left_out(name, inner):
    """Full rank, no clip, no noise: the plain Keras optimizer."""
    ordinary, own = make_model(), compiled(CASES[name].exact_optimizer(INNER[inner]()))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    ordinary.compile(INNER[inner](), loss=loss, jit_compile=False)
    ordinary.fit(same_batches(), epochs=2, verbose=0, shuffle=False)
    own.fit(same_batches(), epochs=2, verbose=0, sampling="shuffle")
    assert int(own.optimizer.iterations) == 6
    assert_close(ordinary, own, 1e-4)


@pytest.mark.parametrize("name", ["rgp_history", "lsg_start_step"])
def test_several_steps_per_execution_equal_single_steps(name):
    """Warm-up and start step fall inside of an execution."""
    single, several = (
        compiled(CASES[name].optimizer("sgd", **CLIPPED), steps_per_execution=steps)
        for steps in (1, 3)
    )
    for model in (single, several):
        fit(model, epochs=2)
        assert int(model.optimizer.iterations) == 6
    assert_close(single, several, 1e-4)


DEFAULTS = {
    RGP: {
        "rank": 8,
        "power_iterations": 1,
        "warmup_steps": 100,
        "carriers_from": "history",
        "carriers": "both",
    },
    LSG: {
        "rank": 8,
        "sparsity": 0.5,
        "sparsity_start_step": 0,
        "carriers_from": "weights",
        "masks_from": "weights",
    },
    SPARSE: {"sparsity": 0.5, "unit": "weight"},
    tfdp.DPPowerSGDOptimizer: {"rank": 8, "power_iterations": 1},
    tfdp.DPSGDOptimizer: {"clipping": "flat", "gradient_method": "auto", "accountant": "pld"},
}


@pytest.mark.parametrize("make", DEFAULTS, ids=lambda make: make.__name__)
def test_defaults_are_those_that_the_documents_state(make):
    config = make("sgd", l2_norm_clip=1.0, noise_multiplier=1.0).get_config()
    assert {name: config[name] for name in DEFAULTS[make]} == DEFAULTS[make]


BAD = {
    "rank of 0": (RGP, {"rank": 0}),
    "fraction of a rank": (RGP, {"rank": 1.5}),
    "boolean rank": (RGP, {"rank": True}),
    "no power iteration": (RGP, {"power_iterations": 0}),
    "negative warmup": (RGP, {"warmup_steps": -1}),
    "unknown source": (RGP, {"carriers_from": "gradients"}),
    "unknown carriers": (RGP, {"carriers": "none"}),
    "everything frozen": (LSG, {"sparsity": 1.0}),
    "negative sparsity": (LSG, {"sparsity": -0.1}),
    "NaN sparsity": (LSG, {"sparsity": float("nan")}),
    "negative start step": (LSG, {"sparsity_start_step": -1}),
    "unknown masks": (LSG, {"masks_from": "gradients"}),
    "rank of 0 in lsg": (LSG, {"rank": 0}),
    "unknown carriers in lsg": (LSG, {"carriers": "middle"}),
    "everything sparse": (SPARSE, {"sparsity": 1.0}),
    "negative fraction": (SPARSE, {"sparsity": -0.1}),
    "unknown unit": (SPARSE, {"unit": "layer"}),
    "rank of 0 in power sgd": (tfdp.DPPowerSGDOptimizer, {"rank": 0}),
    "no power iteration in power sgd": (tfdp.DPPowerSGDOptimizer, {"power_iterations": 0}),
}


@pytest.mark.parametrize("name", BAD)
def test_wrong_hyperparameters_are_refused_by_name(name):
    make, arguments = BAD[name]
    [argument] = arguments
    with pytest.raises(ValueError, match=f"(?s)Expected.*{argument}.*Received:.*\\."):
        make("sgd", l2_norm_clip=1.0, noise_multiplier=1.0, **arguments)


@each_optimizer
def test_privacy_arguments_are_checked_as_those_of_dpsgd(case):
    with pytest.raises(ValueError, match="(?s)Expected.*l2_norm_clip"):
        case.optimizer(l2_norm_clip=-1.0, noise_multiplier=1.0)
    with pytest.raises(ValueError, match="(?s)Expected.*Received"):
        case.optimizer(l2_norm_clip=1.0)
    with pytest.raises(TypeError, match="l2_norm_clip"):
        case.optimizer(noise_multiplier=1.0)


@each_optimizer
def test_ordinary_training_steps_are_refused(case):
    model = make_model()
    model.compile(case.optimizer(**NOISY), loss="mse", jit_compile=False)
    with pytest.raises(tfdp.NotPrivateError):
        model.fit(np.zeros((4, 8)), np.zeros((4, 3)), verbose=0)
