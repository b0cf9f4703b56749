"""Classes with a `compile` of their own: their files and copies keep what was spent."""

import copy
import subprocess
import sys

import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.errors import NotPrivateError

DELTA = 1e-3


@keras.saving.register_keras_serializable("own_compile")
class Own(keras.Model):
    """As Keras' guides write them: a default optimizer of its own."""

    def __init__(self, units=3, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.hidden, self.head = keras.layers.Dense(units, "tanh"), keras.layers.Dense(3)

    def call(self, x):
        return self.head(self.hidden(x))

    def get_config(self):
        return {**super().get_config(), "units": self.units}

    def compile(self, optimizer="adam", loss=None, **kwargs):
        super().compile(optimizer=optimizer, loss=loss, **kwargs)


@keras.saving.register_keras_serializable("own_compile")
class Distiller(Own):
    """Whose `compile` needs more than Keras keeps."""

    def compile(self, optimizer, temperature, **kwargs):
        self.temperature = temperature
        super().compile(optimizer=optimizer, **kwargs)


@keras.saving.register_keras_serializable("own_compile")
class Renamed(Own):
    """Which keeps its arguments under names of its own, and needs an attribute to compile."""

    def compile(self, optimizer, loss, **kwargs):
        self.temperature = 2 * self.setting
        super().compile(optimizer=optimizer, loss=loss, **kwargs)

    def get_compile_config(self):
        return {"model_optimizer": self.optimizer, "criterion": self.loss}


@keras.saving.register_keras_serializable("own_compile")
class Assigned(Own):
    """Which tells Keras nothing of its optimizer."""

    def compile(self, optimizer, loss=None, **kwargs):
        super().compile(loss=loss, **kwargs)
        self.optimizer = optimizer


def optimizer():
    return tfdp.DPSGDOptimizer("adam", l2_norm_clip=1.0, epsilon=3.0, delta=DELTA)


@pytest.mark.parametrize("kind", [Own, Distiller, Renamed, Assigned])
@pytest.mark.parametrize("how", ["file", "copy"])
def test_what_was_spent_comes_back(kind, how, data, tmp_path):
    x, y = data()
    model, further = kind(), {"temperature": 2.0} if kind is Distiller else {}
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    tfdp.make_private(model)
    model.setting = 1.0
    model.compile(optimizer=optimizer(), loss=loss, **further)
    model.fit(x, y, batch_size=8, epochs=2, verbose=0)
    spent = tfdp.privacy_spent(model, DELTA)
    if how == "copy":
        other = copy.deepcopy(model)
    else:
        model.save(tmp_path / "own.keras")
        other = keras.models.load_model(tmp_path / "own.keras")
    assert tfdp.privacy_spent(other, DELTA) == pytest.approx(spent) and spent > 1.0
    assert isinstance(other.optimizer, tfdp.DPSGDOptimizer)
    tfdp.make_private(other)
    other.setting = 1.0
    other.compile(optimizer=optimizer(), loss=loss, **further)
    other.fit(x, y, batch_size=8, epochs=2, verbose=0)  # with what is left of the target
    assert spent < tfdp.privacy_spent(other, DELTA) <= 3.0


def test_the_next_file_of_a_loaded_model_has_its_optimizer_too(private, tmp_path):
    private(Assigned(), noise_multiplier=1.0).save(tmp_path / "own.keras")
    other = keras.models.load_model(tmp_path / "own.keras")
    assert other.get_compile_config()["optimizer"]["class_name"] == "DPSGDOptimizer"


@pytest.mark.parametrize("compiled", ["sgd", "as it is", False])
def test_an_optimizer_that_is_put_into_a_model_is_saved_with_it(data, tmp_path, compiled):
    """Keras saves that of `compile`: 0.00 was stated of the file for 11.90."""
    x, y = data()
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)])
    tfdp.make_private(model)
    if compiled == "sgd":
        model.compile("sgd")
    model.optimizer = tfdp.DPSGDOptimizer("adam", l2_norm_clip=1.0, noise_multiplier=1.0)
    if compiled == "as it is":
        model.compile(model.optimizer)
    sampler = tfdp.PoissonSampler(x, y, batch_size=8, steps=3)
    if not compiled:
        with pytest.raises(NotPrivateError, match=r"never compiled.*model\.compile"):
            tfdp.PrivateTrainer(model, sampler)
        return
    trainer = tfdp.PrivateTrainer(model, sampler)

    def forward(batch):
        logits = model(batch["x"], training=True)
        return keras.losses.sparse_categorical_crossentropy(batch["y"], logits, True), ()

    for batch in sampler:
        trainer.apply(trainer.gradients(forward, batch))
    model.save(tmp_path / "model.keras")
    spent = tfdp.privacy_spent(model, DELTA)
    for other in (keras.models.load_model(tmp_path / "model.keras"), copy.deepcopy(model)):
        assert tfdp.privacy_spent(other, DELTA) == pytest.approx(spent) and spent > 1.0


def test_a_class_whose_compile_is_not_keras_own_trains_when_it_calls_that(data):
    class Alone(keras.Sequential):
        def compile(self, optimizer):
            self.optimizer, self.compiled = optimizer, True

    class Together(keras.Sequential):
        def compile(self, optimizer):
            super().compile(optimizer=optimizer)

    sampler = tfdp.PoissonSampler(*data(), batch_size=8, steps=3)
    for kind in (Alone, Together):
        model = tfdp.make_private(kind([keras.Input((5,)), keras.layers.Dense(3)]))
        model.compile(optimizer())
        if kind is Alone:
            with pytest.raises(NotPrivateError, match=r"super\(\)\.compile\(optimizer="):
                tfdp.PrivateTrainer(model, sampler)
        else:
            assert tfdp.PrivateTrainer(model, sampler)


@pytest.mark.parametrize("told", [None, {"loss": "mse"}])
def test_a_model_that_keras_saves_without_its_optimizer_is_warned_of(private, data, tmp_path, told):
    class Untold(keras.Sequential):
        def get_compile_config(self):
            return told

    model = private(Untold([keras.Input((5,)), keras.layers.Dense(3)]), noise_multiplier=1.0)
    model.fit(*data(), batch_size=8, verbose=0)
    with pytest.warns(UserWarning, match="what was spent is not saved with the model"):
        model.save(tmp_path / "model.keras")


def test_such_models_of_other_optimizers_are_loaded_as_keras_does(data, tmp_path):
    x, y = data()
    model = Own()
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(x, y, verbose=0)
    model.save(tmp_path / "own.keras")
    with pytest.warns(UserWarning, match="method is custom"):
        other = keras.models.load_model(tmp_path / "own.keras")
    assert getattr(other, "optimizer", None) is None
    np.testing.assert_array_equal(other.predict(x, verbose=0), model.predict(x, verbose=0))


SCRIPT = """
import keras, keras_hub, sys
import tf_lowrank_dp as tfdp
model = keras.models.load_model(sys.argv[1])
print(tfdp.privacy_spent(model, 1e-3))
"""


@pytest.mark.parametrize("arguments", [{"epsilon": 3.0}, {"noise_multiplier": 2.0}])
def test_a_task_of_keras_hub_brings_its_ledger_into_another_process(arguments, tmp_path):
    keras_hub = pytest.importorskip("keras_hub")
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=20, num_layers=1, num_heads=1, hidden_dim=4, intermediate_dim=4,
        max_sequence_length=5,
    )  # fmt: skip
    model = keras_hub.models.BertTextClassifier(backbone, num_classes=2, preprocessor=None)
    ids = np.random.default_rng(0).integers(0, 20, (50, 5)).astype("int32")
    x = {name: np.ones_like(ids) for name in ("padding_mask", "segment_ids")} | {"token_ids": ids}
    tfdp.make_private(model)
    model.compile(optimizer=tfdp.DPSGDOptimizer("adam", l2_norm_clip=1.0, delta=DELTA, **arguments))
    model.fit(x, ids[:, 0] % 2, batch_size=10, epochs=1, verbose=0)
    model.save(tmp_path / "task.keras")
    run = [sys.executable, "-c", SCRIPT, str(tmp_path / "task.keras")]
    printed = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    assert float(printed.split()[-1]) == pytest.approx(tfdp.privacy_spent(model, DELTA))
