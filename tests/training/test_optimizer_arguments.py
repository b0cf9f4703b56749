"""Arguments of private optimizers: refused with what was expected, received and the remedy."""

import copy
import json
import math
import pickle

import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp

NAN, INF = float("nan"), math.inf
GOOD = {"l2_norm_clip": 1.0, "noise_multiplier": 1.0}
BAD = {
    "clip of zero": {"l2_norm_clip": 0.0},
    "negative clip": {"l2_norm_clip": -1.0},
    "NaN clip": {"l2_norm_clip": NAN},
    "boolean clip": {"l2_norm_clip": True},
    "no clip": {"l2_norm_clip": None},
    "infinite clip with noise": {"l2_norm_clip": INF},
    "infinite clip with epsilon": {
        "l2_norm_clip": INF, "noise_multiplier": None, "epsilon": 1.0, "delta": 1e-5
    },
    "negative noise": {"noise_multiplier": -0.1},
    "NaN noise": {"noise_multiplier": NAN},
    "infinite noise": {"noise_multiplier": INF},
    "neither": {"noise_multiplier": None},
    "both": {"epsilon": 1.0, "delta": 1e-5},
    "epsilon without delta": {"noise_multiplier": None, "epsilon": 1.0},
    "zero epsilon": {"noise_multiplier": None, "epsilon": 0.0, "delta": 1e-5},
    "negative epsilon": {"noise_multiplier": None, "epsilon": -1.0, "delta": 1e-5},
    "NaN epsilon": {"noise_multiplier": None, "epsilon": NAN, "delta": 1e-5},
    "zero delta": {"noise_multiplier": None, "epsilon": 1.0, "delta": 0.0},
    "delta of 1": {"noise_multiplier": None, "epsilon": 1.0, "delta": 1.0},
    "NaN delta": {"delta": NAN},
    "fraction of steps": {"planned_steps": 2.5},
    "no steps": {"planned_steps": 0},
    "unknown method": {"gradient_method": "fast"},
    "unknown accountant": {"accountant": "moments"},
    "unknown clipping": {"clipping": "automatic"},
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(BAD))
def test_wrong_privacy_arguments_are_refused(name):
    with pytest.raises(ValueError, match="(?s)Expected.*Received:.*\\."):
        tfdp.DPSGDOptimizer("sgd", **{**GOOD, **BAD[name]})


def test_a_missing_clip_is_refused():
    with pytest.raises(TypeError, match="l2_norm_clip"):
        tfdp.DPSGDOptimizer("sgd", noise_multiplier=1.0)


@pytest.mark.parametrize(
    ("inner", "message"),
    [
        (lambda: keras.optimizers.SGD(gradient_accumulation_steps=4), "microbatch_size"),
        (lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam()), "loss scaling"),
        (lambda: keras.optimizers.Adam(loss_scale_factor=128.0), "loss scaling"),
        (lambda: tfdp.DPSGDOptimizer("sgd", **GOOD), "private itself"),
    ],
    ids=["accumulation", "loss scale", "loss scale factor", "private"],
)
def test_inner_optimizers_that_would_spoil_the_guarantee_are_refused(inner, message):
    with pytest.raises(ValueError, match=f"(?s)Expected.*{message}"):
        tfdp.DPSGDOptimizer(inner(), **GOOD)


@pytest.mark.parametrize(
    "inner",
    ["adam", keras.optimizers.SGD(0.5), keras.optimizers.serialize(keras.optimizers.Adam(0.5))],
    ids=["name", "object", "config"],
)
def test_the_inner_optimizer_may_be_a_name_an_object_or_a_config(inner):
    optimizer = tfdp.DPSGDOptimizer(inner, **GOOD)
    assert isinstance(optimizer.inner_optimizer, keras.optimizers.Optimizer)


def test_config_round_trip_keeps_everything_but_the_seed():
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    optimizer = tfdp.DPSGDOptimizer(
        keras.optimizers.AdamW(schedule, weight_decay=0.2),
        l2_norm_clip=0.3,
        epsilon=2.0,
        delta=1e-6,
        planned_steps=70,
        gradient_method="reweight",
        accountant="rdp",
        clipping="per_layer",
        seed=123454321,
    )
    config = keras.optimizers.serialize(optimizer)
    assert "123454321" not in str(config)
    restored = keras.optimizers.deserialize(config)
    assert type(restored) is tfdp.DPSGDOptimizer and restored.seed is None
    assert restored.get_config() == optimizer.get_config()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
def test_copies_of_an_optimizer_keep_the_ledger(private, small_model, data, copied):
    model = private(small_model(), noise_multiplier=1.0)
    model.fit(*data(), batch_size=12, verbose=0)
    spent = tfdp.privacy_spent(model, 1e-3)
    other = copied(model)
    tfdp.make_private(other)
    assert tfdp.privacy_spent(other, 1e-3) == pytest.approx(spent)


@pytest.mark.parametrize(
    "name", ["num_microbatches", "unroll_microbatches", "gradient_accumulation_steps"]
)
@pytest.mark.parametrize("optimizer", [tfdp.DPSGDOptimizer, tfdp.LSGOptimizer])
def test_arguments_of_tensorflow_privacy_are_refused_with_what_to_write_instead(optimizer, name):
    with pytest.raises(ValueError, match=f"(?s)Expected.*Received: {name}.*Leave it out"):
        optimizer(l2_norm_clip=1.0, noise_multiplier=1.0, **{name: 1})
    with pytest.raises(ValueError, match="(?s)Received: learning_rate.*inner optimizer"):
        optimizer(l2_norm_clip=1.0, noise_multiplier=1.0, learning_rate=0.1)


class Warmup(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule as tutorials write it: without a config."""

    def __call__(self, step):
        return 0.1 / (1.0 + keras.ops.cast(step, "float32"))


class Plain(keras.optimizers.SGD):
    def get_config(self):
        raise NotImplementedError


@pytest.mark.parametrize("make", [lambda: keras.optimizers.Adam(Warmup()), lambda: Plain(0.1)])
def test_optimizers_without_a_config_train_as_ordinarily(twins, small_model, data, make):
    twins(small_model, data(), make, epochs=1)


@pytest.mark.parametrize("name", BAD)
def test_what_is_set_as_an_attribute_is_checked_before_a_run_begins(
    name, private, small_model, data
):
    model = private(small_model(), **{k: v for k, v in GOOD.items() if k != "l2_norm_clip"})
    for setting, value in BAD[name].items():
        setattr(model.optimizer, setting, value)
    with pytest.raises(ValueError, match="Expected"):
        model.fit(*data(), batch_size=6, verbose=0)
    assert model.optimizer.ledger.num_steps == 0


def test_a_clip_norm_of_numpy_that_is_set_as_an_attribute_is_that_of_the_run(
    private, small_model, data
):
    """It was clipped at 1, as no Python number."""
    model = private(small_model(), noise_multiplier=1e-9, optimizer=keras.optimizers.SGD(1.0))
    model.optimizer.l2_norm_clip = np.float32(1e-3)
    before = model.get_weights()
    model.fit(*data(), batch_size=24, verbose=0)
    moved = [(a - b).ravel() for a, b in zip(model.get_weights(), before, strict=True)]
    assert np.linalg.norm(np.concatenate(moved)) <= 1.001e-3
    assert model.optimizer.ledger.entries[0].l2_norm_clip == pytest.approx(1e-3)


@pytest.mark.parametrize(
    "numbers",
    [
        {"noise_multiplier": np.float32(2.0), "seed": np.int64(3)},
        {"noise_multiplier": np.float64(2.0), "gradient_scale": {"kernel": np.float32(0.5)}},
        {"epsilon": np.float32(3.0), "delta": np.float64(1e-3), "planned_steps": np.int64(8)},
    ],
)
def test_numbers_of_numpy_are_saved_as_those_of_python(numbers, tmp_path):
    model = tfdp.make_private(keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)]))
    model.compile(tfdp.DPSGDOptimizer("sgd", l2_norm_clip=np.float32(1.0), **numbers), "mse")
    model.fit(np.ones((8, 3)), np.ones((8, 1)), batch_size=4, verbose=0)
    settings = model.optimizer.privacy_settings
    json.dumps({name: value for name, value in settings.items() if name != "l2_norm_clip"})
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras").optimizer.privacy_settings
    assert again == settings
