"""`AutomaticClip` and `QuantileClip` in `fit`: against one example at a time; saved, counted."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tests import oracle
from tf_lowrank_dp.accounting import LedgerEntry, PrivacyLedger, Sampling
from tf_lowrank_dp.optimizers.releases import CLIP_NORMS
from tf_lowrank_dp.release.quantile import QuantileSpace
from tf_lowrank_dp.training.start_run import start_run

ROWS, RATE = 24, 0.1
NOISY = {"noise_multiplier": 1.0, "delta": 1e-3, "accountant": "rdp"}
EXACT = {"noise_multiplier": 0.0}
QUANTILE = tfdp.QuantileClip(0.7, initial=0.3, rate=0.5)
RULES = {"automatic": tfdp.AutomaticClip(), "quantile": QUANTILE}
OPTIMIZERS = {
    "dpsgd": (tfdp.DPSGDOptimizer, {}),
    "dpsgd_centred": (tfdp.DPSGDOptimizer, {"centering": True}),
    "power_sgd": (tfdp.DPPowerSGDOptimizer, {"rank": 1}),
    "rgp": (tfdp.RGPOptimizer, {"rank": 1, "warmup_steps": 1}),
    "lsg": (tfdp.LSGOptimizer, {"rank": 1}),
    "sparse": (tfdp.SparseDPSGDOptimizer, {}),
}
each_clipping = pytest.mark.parametrize("clipping", ["flat", "per_layer"])
each_rule = pytest.mark.parametrize("rule", RULES)


def data():
    generator = np.random.default_rng(0)
    x = generator.normal(0.2, 1.0, size=(ROWS, 6)).astype("float32")
    x[:3] *= 1e-3  # norms of all sizes
    return x, generator.integers(0, 3, ROWS).astype("int32")


def make_model():
    keras.utils.set_random_seed(0)
    dense = keras.layers.Dense
    return keras.Sequential(
        [keras.Input((6,)), dense(5, activation="relu", name="hidden"), dense(3, name="head")]
    )


def losses(model, scale=1.0):
    def of(batch):
        x, y = batch
        return scale * tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x))

    return of


def compiled(optimizer, microbatch_size=None, **arguments):
    model = tfdp.make_private(make_model(), microbatch_size=microbatch_size)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss=loss, **{"jit_compile": False, **arguments})
    return model


def batches(steps):
    """The same batch of all rows at each step, declared as a shuffled data set."""
    rows = tuple(np.concatenate([part] * steps) for part in data())
    return tf.data.Dataset.from_tensor_slices(rows).batch(ROWS, drop_remainder=True)


def fit(model, steps):
    model.fit(batches(steps), verbose=0, sampling="shuffle")


def clip_norms(model):
    return model.optimizer.algorithm_state[CLIP_NORMS].numpy()


class Oracle:
    """The same training, one example at a time, in float64."""

    def __init__(self, rule, clipping, scale=1.0):
        self.model, self.rule, self.scale = make_model(), rule, scale
        self.groups = [range(4)] if clipping == "flat" else [range(2), range(2, 4)]
        self.norms = np.full(len(self.groups), getattr(rule, "initial", 1.0))

    def step(self):
        gradients = oracle.per_example_gradients(self.model, losses(self.model, self.scale), data())
        parts = len(self.groups)
        for j, group in enumerate(self.groups):
            norms = oracle.norms([gradients[i] for i in group])
            if isinstance(self.rule, tfdp.AutomaticClip):
                factors = 1.0 / math.sqrt(parts) / (norms + self.rule.stability)
            else:
                clip = self.norms[j] / math.sqrt(parts)
                factors = np.minimum(1.0, clip / norms)
                below = np.mean(norms <= clip)
                self.norms[j] *= np.exp(-self.rule.rate * (below - self.rule.quantile))
            for i in group:
                v = self.model.trainable_variables[i]
                v.assign_sub(RATE * np.tensordot(factors, gradients[i], 1) / ROWS)


@each_rule
@each_clipping
@pytest.mark.parametrize("how", ["graph", "xla", "microbatches", "reweight"])
def test_without_noise_each_step_is_that_of_one_example_at_a_time(rule, clipping, how):
    method = {"gradient_method": "reweight"} if how == "reweight" else {}
    optimizer = tfdp.DPSGDOptimizer(
        keras.optimizers.SGD(RATE), l2_norm_clip=RULES[rule], clipping=clipping, **EXACT, **method
    )
    parts = 7 if how == "microbatches" else None
    model = compiled(optimizer, microbatch_size=parts, jit_compile=how == "xla")
    exact = Oracle(RULES[rule], clipping)
    for _ in range(4):
        exact.step()
    fit(model, 4)
    for found, expected in zip(
        model.trainable_variables, exact.model.trainable_variables, strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5, err_msg=found.path)
    if rule == "quantile":
        np.testing.assert_allclose(clip_norms(model), exact.norms, rtol=1e-4)


def test_automatic_clipping_does_not_see_the_scale_of_the_loss():
    """Nor would a clip norm change anything but learning rates."""
    found = []
    for scale in (1.0, 1000.0):
        exact = Oracle(tfdp.AutomaticClip(1e-6), "flat", scale)
        exact.step()
        found.append([v.numpy() for v in exact.model.trainable_variables])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


@each_clipping
def test_the_clip_norm_comes_to_the_quantile_of_the_norms(clipping):
    clip = tfdp.QuantileClip(0.75, initial=50.0, rate=0.3)
    inner = keras.optimizers.SGD(0.0)  # the norms stay
    model = compiled(tfdp.DPSGDOptimizer(inner, l2_norm_clip=clip, clipping=clipping, **EXACT))
    fit(model, 150)
    gradients = oracle.per_example_gradients(model, losses(model), data())
    groups = [range(4)] if clipping == "flat" else [range(2), range(2, 4)]
    for norm, group in zip(clip_norms(model), groups, strict=True):
        norms = np.sort(oracle.norms([gradients[i] for i in group]))
        own = norm / math.sqrt(len(groups))
        assert norms[ROWS * 5 // 8] < own < norms[ROWS * 7 // 8]


@each_clipping
@pytest.mark.parametrize("centering", [False, True])
def test_gradients_and_counts_together_are_one_gaussian_of_the_multiplier(clipping, centering):
    """The largest shift in units of the noise is `1 / z`; 0.5 % more noise on the gradients."""
    model = compiled(
        tfdp.DPSGDOptimizer(
            "sgd", l2_norm_clip=QUANTILE, clipping=clipping, centering=centering, **NOISY
        )
    )
    engine = start_run(model, Sampling.poisson(ROWS, 8), steps=1).engine
    clips, deviations = engine.mechanism.block_clips, engine.mechanism.deviations
    shifts = [c / d for c, d in zip(clips, deviations, strict=True)]
    assert math.hypot(*shifts) == pytest.approx(1.0, rel=1e-9)
    own = len(shifts) - 1 - centering
    expected = 1 - 0.01 - 0.04 * centering
    assert math.hypot(*shifts[:own]) ** 2 == pytest.approx(expected, rel=1e-9)
    assert engine.space.shapes[own] == [(own,)]  # a count for each block of gradients


@pytest.mark.parametrize(("name", "rule"), zip(OPTIMIZERS, ["quantile", *RULES] * 2, strict=True))
def test_fit_counts_saves_and_goes_on(name, rule, tmp_path):
    make, arguments = OPTIMIZERS[name]
    model = compiled(make("adam", l2_norm_clip=RULES[rule], **arguments, **NOISY))
    model.fit(*data(), batch_size=8, verbose=0)
    ledger, sampling = PrivacyLedger(), Sampling.poisson(batch_size=8, num_examples=ROWS)
    ledger.append(LedgerEntry(sampling, NOISY["noise_multiplier"], steps=3))
    assert tfdp.privacy_spent(model, 1e-3) == ledger.epsilon(1e-3, accountant="rdp")
    assert f"{model.optimizer.algorithm.name}, {rule} clip" in str(tfdp.privacy_statement(model))
    assert all(np.all(np.isfinite(v)) for v in model.trainable_variables)

    model.save(tmp_path / "model.keras")
    loaded = tfdp.make_private(keras.models.load_model(tmp_path / "model.keras"))
    assert loaded.optimizer.l2_norm_clip == RULES[rule]
    assert loaded.optimizer.get_config() == model.optimizer.get_config()
    if rule == "quantile":
        assert np.all(clip_norms(model) != QUANTILE.initial)
        np.testing.assert_array_equal(clip_norms(loaded), clip_norms(model))
    loaded.fit(*data(), batch_size=8, verbose=0)
    assert loaded.optimizer.ledger.num_steps == 6


def test_a_run_that_is_saved_and_loaded_goes_on_bit_for_bit(tmp_path):
    model = compiled(tfdp.DPSGDOptimizer("sgd", l2_norm_clip=QUANTILE, seed=3, **NOISY))
    fit(model, 3)
    model.save(tmp_path / "model.keras")
    loaded = tfdp.make_private(keras.models.load_model(tmp_path / "model.keras"))
    for each in (model, loaded):  # both begin a run whose noise is that of seed 4
        each.optimizer.seed = 4
        fit(each, 3)
    for found, expected in zip(loaded.weights, model.weights, strict=True):
        np.testing.assert_array_equal(found, expected, err_msg=expected.path)
    np.testing.assert_array_equal(clip_norms(loaded), clip_norms(model))


def test_the_clip_norm_of_a_step_is_what_the_steps_before_have_left():
    """The first step's is the initial one, whatever the data."""
    model = compiled(tfdp.DPSGDOptimizer("sgd", l2_norm_clip=QUANTILE, **NOISY), run_eagerly=True)
    seen, kept = [], [np.float32([QUANTILE.initial])]
    refresh = QuantileSpace.refresh

    def refreshing(space):
        subspace = refresh(space)
        seen.append(subspace.values)
        return subspace

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(QuantileSpace, "refresh", refreshing)
        for _ in range(3):
            fit(model, 1)
            kept.append(clip_norms(model))
    assert len(seen) == 3
    for used, left in zip(seen, kept, strict=False):
        np.testing.assert_array_equal(used, left)


def test_a_clip_norm_that_noise_alone_moves_stays_finite_and_positive():
    """One example a step and huge noise: the counts are noise only."""
    model = compiled(
        tfdp.DPSGDOptimizer(
            keras.optimizers.SGD(0.0),
            l2_norm_clip=tfdp.QuantileClip(rate=5.0),
            noise_multiplier=1e3,
            delta=1e-3,
        )
    )
    model.fit(*data(), batch_size=1, verbose=0)
    assert np.all((clip_norms(model) >= 1e-6) & (clip_norms(model) <= 1e6))


def test_the_release_summary_is_in_units_of_the_present_clip_norm():
    model = compiled(tfdp.DPSGDOptimizer("sgd", l2_norm_clip=QUANTILE, **NOISY))
    summary = tfdp.diagnostics.release_summary(model)
    assert summary.parameters == 53 and summary.released == 54
    assert summary.lifted_energy == pytest.approx(53 * 0.3**2 / 0.99, rel=1e-6)
    automatic = tfdp.DPSGDOptimizer("sgd", l2_norm_clip=tfdp.AutomaticClip(), **NOISY)
    assert tfdp.diagnostics.release_summary(model, automatic).lifted_energy == 53.0


@pytest.mark.parametrize(
    "make",
    [
        lambda: tfdp.AutomaticClip(0.0),
        lambda: tfdp.AutomaticClip(float("nan")),
        lambda: tfdp.QuantileClip(1.0),
        lambda: tfdp.QuantileClip(initial=0.0),
        lambda: tfdp.QuantileClip(rate=-1.0),
        lambda: tfdp.DPSGDOptimizer("sgd", l2_norm_clip="automatic", **NOISY),
        lambda: tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, clipping="automatic", **NOISY),
    ],
)
def test_wrong_settings_are_refused(make):
    with pytest.raises(ValueError, match="(?s)Expected.*Received"):
        make()
