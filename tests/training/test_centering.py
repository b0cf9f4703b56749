"""`centering=True` through `fit`: as training in centred coordinates; saved, resumed, counted."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.accounting import LedgerEntry, PrivacyLedger, Sampling
from tf_lowrank_dp.layers.parameters import describe_parameters
from tf_lowrank_dp.release.centred import CentredSpace
from tf_lowrank_dp.training.start_run import start_run

ROWS = 24
INNER = {
    "sgd": lambda: keras.optimizers.SGD(0.1),
    "momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.9),
    "adam": lambda: keras.optimizers.Adam(0.01),
}
EXACT = {"l2_norm_clip": float("inf"), "noise_multiplier": 0.0}
NOISY = {"l2_norm_clip": 0.5, "noise_multiplier": 1.0, "delta": 1e-3, "accountant": "rdp"}
FULL = {"rank": 100, "include": ["kernel"]}
OPTIMIZERS = {
    "dpsgd": (tfdp.DPSGDOptimizer, {}, {}),
    "dpsgd_per_layer": (tfdp.DPSGDOptimizer, {"clipping": "per_layer"}, {}),
    "dpsgd_scaled": (tfdp.DPSGDOptimizer, {"gradient_scale": {"head": 0.5, "v/bias": 0.1}}, None),
    "dpsgd_reweight": (tfdp.DPSGDOptimizer, {"gradient_method": "reweight"}, {}),
    "rgp": (tfdp.RGPOptimizer, {"rank": 1, "warmup_steps": 1}, FULL),
    "lsg": (tfdp.LSGOptimizer, {"rank": 1}, {**FULL, "sparsity": 0.0}),
    "sparse": (tfdp.SparseDPSGDOptimizer, {}, {"sparsity": 0.0}),
    "power_sgd": (tfdp.DPPowerSGDOptimizer, {"rank": 1}, FULL),
}


def data():
    generator = np.random.default_rng(0)
    x = generator.normal(0.2, 0.3, size=(ROWS, 6, 5, 2)).astype("float32")
    return x, generator.integers(0, 3, ROWS).astype("int32")


def make_model(seed=0):
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [
            keras.Input((6, 5, 2)),
            keras.layers.Conv2D(4, 3, strides=2, padding="same", activation="relu", name="conv"),
            keras.layers.Flatten(),
            keras.layers.Dense(3, bias_initializer="ones", name="head"),
        ]
    )


def compiled(optimizer, seed=0, **arguments):
    model = tfdp.make_private(make_model(seed))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss=loss, **{"jit_compile": False, **arguments})
    return model


def batches(steps=4):
    """The same batch of all rows at each step, declared as a shuffled data set."""
    rows = tuple(np.concatenate([part] * steps) for part in data())
    return tf.data.Dataset.from_tensor_slices(rows).batch(ROWS, drop_remainder=True)


def centres(model):
    state = model.optimizer.algorithm_state
    return {name: state[name].numpy() for name in state.names if name.startswith("centre_")}


class Oracle:
    """The model of `make_model` in centred coordinates, trained by ordinary differentiation.

    Layers are `(X - mu) W + c`; the gradient of `c` counts 0.09 times.  Between two steps `mu`
    moves to the running mean of the inputs, and `c` with it, so that the function stays the same.
    """

    def __init__(self, inner):
        w1, b1, w2, b2 = (v.numpy() for v in make_model().trainable_variables)
        self.variables = [keras.Variable(v) for v in (w1.reshape(18, 4), b1, w2, b2)]
        self.mu = [np.zeros(18, np.float32), np.zeros(36, np.float32)]
        self.inner, self.steps = inner, 0
        inner.build(self.variables)

    def forward(self, x):
        w1, c1, w2, c2 = (v.value for v in self.variables)
        patches = tf.image.extract_patches(x, [1, 3, 3, 1], [1, 2, 2, 1], [1] * 4, "SAME")
        hidden = tf.nn.relu((patches - self.mu[0]) @ w1 + c1)
        hidden = tf.reshape(hidden, [len(x), -1])
        return (hidden - self.mu[1]) @ w2 + c2, [tf.reduce_mean(patches, [1, 2]), hidden]

    def step(self, x, y):
        with tf.GradientTape() as tape:
            logits, inputs = self.forward(x)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
            loss = tf.reduce_mean(losses)
        w1, c1, w2, c2 = tape.gradient(loss, [v.value for v in self.variables])
        self.inner.apply([w1, 0.09 * c1, w2, 0.09 * c2], self.variables)
        distances = [x - mu for x, mu in zip(inputs, self.mu, strict=True)]
        assert np.max(tf.norm(tf.concat(distances, 1), axis=1)) < 0.4 * 54**0.5  # not clipped
        rate = max(0.05, 1 / (self.steps + 1))
        moved = [mu + rate * np.mean(d, 0) for mu, d in zip(self.mu, distances, strict=True)]
        for layer, (old, new) in enumerate(zip(self.mu, moved, strict=True)):
            kernel, c = self.variables[2 * layer : 2 * layer + 2]
            c.assign(c + (new - old) @ kernel)
        self.mu, self.steps = moved, self.steps + 1

    def weights(self):
        """Those of the layers without a centre."""
        w1, c1, w2, c2 = (v.numpy() for v in self.variables)
        return w1.reshape(3, 3, 2, 4), c1 - self.mu[0] @ w1, w2, c2 - self.mu[1] @ w2


exact_cases = [name for name, (_, _, exact) in OPTIMIZERS.items() if exact is not None]


@pytest.mark.parametrize(
    ("name", "inner"),
    [(name, inner) for name in exact_cases for inner in INNER if name == "dpsgd" or inner != "sgd"],
)
def test_without_clip_and_noise_it_trains_as_the_plain_optimizer_in_centred_coordinates(
    name, inner
):
    make, _, exact = OPTIMIZERS[name]
    model = compiled(make(INNER[inner](), centering=True, **exact, **EXACT))
    oracle = Oracle(INNER[inner]())
    for _ in range(4):
        oracle.step(*data())
    model.fit(batches(4), epochs=1, verbose=0, sampling="shuffle")
    for found, expected in zip(model.trainable_variables, oracle.weights(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4, err_msg=found.path)
    for found, mu in zip(centres(model).values(), oracle.mu, strict=True):
        np.testing.assert_allclose(found[:, 0], mu, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("clipping", ["flat", "per_layer"])
def test_gradients_and_means_together_are_one_gaussian_of_the_multiplier(clipping):
    """2 % more noise on the gradients; the largest shift in units of the noise is `1 / z`."""
    model = compiled(tfdp.DPSGDOptimizer("sgd", centering=True, clipping=clipping, **NOISY))
    mechanism = start_run(model, Sampling.poisson(ROWS, 8), steps=1).engine.mechanism
    *gradients, means = zip(mechanism.block_clips, mechanism.deviations, strict=True)
    assert math.hypot(*(clip for clip, _ in gradients)) == pytest.approx(NOISY["l2_norm_clip"])
    shift = math.hypot(*(clip / deviation for clip, deviation in [*gradients, means]))
    assert shift == pytest.approx(1 / NOISY["noise_multiplier"], rel=1e-9)
    more = math.hypot(*(clip / deviation for clip, deviation in gradients)) * 1.0206
    assert more == pytest.approx(1 / NOISY["noise_multiplier"], rel=1e-3)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_fit_counts_saves_and_goes_on_with_its_centres(name, tmp_path):
    make, arguments, _ = OPTIMIZERS[name]
    model = compiled(make("adam", centering=True, **arguments, **NOISY))
    model.fit(*data(), batch_size=8, verbose=0)
    ledger, sampling = PrivacyLedger(), Sampling.poisson(batch_size=8, num_examples=ROWS)
    ledger.append(LedgerEntry(sampling, NOISY["noise_multiplier"], steps=3))
    assert tfdp.privacy_spent(model, 1e-3) == ledger.epsilon(1e-3, accountant="rdp")
    assert f"centred {model.optimizer.algorithm.name}" in str(tfdp.privacy_statement(model))
    assert all(np.all(np.isfinite(v)) for v in model.trainable_variables)

    model.save(tmp_path / "model.keras")
    loaded = tfdp.make_private(keras.models.load_model(tmp_path / "model.keras"))
    assert loaded.optimizer.centering and centres(loaded).keys() == centres(model).keys()
    for key, centre in centres(model).items():
        assert np.any(centre != 0.0)
        np.testing.assert_array_equal(centres(loaded)[key], centre)
    loaded.fit(*data(), batch_size=8, verbose=0)
    assert loaded.optimizer.ledger.num_steps == 6


def test_a_run_that_is_saved_and_loaded_goes_on_bit_for_bit(tmp_path):
    optimizer = tfdp.DPSGDOptimizer(INNER["momentum"](), centering=True, seed=3, **NOISY)
    model = compiled(optimizer)
    model.fit(batches(3), verbose=0, sampling="shuffle")
    model.save(tmp_path / "model.keras")
    loaded = tfdp.make_private(keras.models.load_model(tmp_path / "model.keras"))
    for each in (model, loaded):  # both begin a run whose noise is that of seed 4
        each.optimizer.seed = 4
        each.fit(batches(3), verbose=0, sampling="shuffle")
    for found, expected in zip(loaded.weights, model.weights, strict=True):
        np.testing.assert_array_equal(found, expected, err_msg=expected.path)
    for key, centre in centres(model).items():
        np.testing.assert_array_equal(centres(loaded)[key], centre)


def test_the_step_compiled_by_xla_equals_that_of_the_graph():
    models = [
        compiled(
            tfdp.DPSGDOptimizer("sgd", centering=True, l2_norm_clip=0.5, noise_multiplier=0.0),
            jit_compile=jit_compile,
        )
        for jit_compile in (False, True)
    ]
    for model in models:
        model.fit(batches(3), verbose=0, sampling="shuffle")
    for found, expected in zip(*(model.trainable_variables for model in models), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_a_custom_loop_updates_as_fit_does():
    x, y = data()
    arguments = {"centering": True, "l2_norm_clip": 0.5, "noise_multiplier": 0.0}
    fitted = compiled(tfdp.DPSGDOptimizer(INNER["momentum"](), **arguments))
    fitted.fit(batches(3), verbose=0, sampling="shuffle")
    looped = compiled(tfdp.DPSGDOptimizer(INNER["momentum"](), **arguments))
    sampling = Sampling.shuffle(batch_size=ROWS, num_examples=ROWS, steps_per_pass=1)
    trainer = tfdp.PrivateTrainer(looped, sampling, steps=3)

    def forward(batch):
        logits = looped(batch["x"], training=True)
        return tf.nn.sparse_softmax_cross_entropy_with_logits(batch["y"], logits), ()

    for _ in range(3):
        batch = {"x": x, "y": y, "presence": np.ones(ROWS, np.float32)}
        for once in trainer.one_pass([batch]):
            trainer.apply(trainer.gradients(forward, once))
    for found, expected in zip(looped.weights, fitted.weights, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_the_centre_of_a_step_is_that_of_the_steps_before():
    """The first step's is 0, whatever the data; and a step's lift does not move its own."""
    model = compiled(tfdp.DPSGDOptimizer("sgd", centering=True, **NOISY))
    seen = []
    refresh = CentredSpace.refresh

    def refreshing(space):
        subspace = refresh(space)
        seen.append([tf.identity(value) for value in subspace.values.values()])
        return subspace

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(CentredSpace, "refresh", refreshing)
        model.run_eagerly, kept = True, []
        for _ in range(3):
            model.fit(batches(1), verbose=0, sampling="shuffle")
            kept.append([np.array(centre) for centre in centres(model).values()])
    assert len(seen) == 3 and all(not np.any(value) for value in seen[0])
    for used, left in zip(seen[1:], kept, strict=False):
        for value, centre in zip(used, left, strict=True):
            np.testing.assert_array_equal(value, centre)


def test_layers_that_are_frozen_between_two_runs_leave_the_other_centres_alone():
    model = compiled(tfdp.DPSGDOptimizer("sgd", centering=True, **NOISY))
    model.fit(*data(), batch_size=8, verbose=0)
    before = centres(model)["centre_2"]
    model.get_layer("conv").trainable = False
    model.compile(model.optimizer, loss=model.loss, jit_compile=False)
    context = model.optimizer.release_context(
        describe_parameters(model), lambda shapes: [tf.zeros(shape) for shape in shapes]
    )
    model.optimizer.release_space(context)
    assert list(centres(model)) == ["centre_0"]
    np.testing.assert_array_equal(centres(model)["centre_0"], before)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gradient_method": "vectorized"}, "gradient_method"),
        ({"optimizer": keras.optimizers.SGD(0.1, use_ema=True)}, "use_ema"),
    ],
)
def test_what_it_cannot_be_combined_with_is_refused(arguments, message):
    with pytest.raises(ValueError, match=f"(?s)Expected.*{message}.*Received"):
        tfdp.DPSGDOptimizer(centering=True, **{**NOISY, **arguments})


def test_a_model_without_a_kernel_and_its_bias_is_refused():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, use_bias=False)])
    tfdp.make_private(model).compile(
        tfdp.DPSGDOptimizer("sgd", centering=True, **NOISY), loss="mse"
    )
    with pytest.raises(ValueError, match="(?s)Expected.*bias.*Received"):
        model.fit(np.ones((8, 4)), np.ones((8, 3)), batch_size=4, verbose=0)


def test_gep_does_not_offer_it():
    with pytest.raises(TypeError, match="centering"):
        tfdp.GEPOptimizer("sgd", centering=True, noise_multiplier=1.0)
