"""`make_standard` leaves no trace; `make_private` changes nothing but training."""

import subprocess
import sys

import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp

PACKAGE = "tf_lowrank_dp"


@pytest.fixture
def fitted(private, data):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((4, 5))
    hidden = keras.layers.MultiHeadAttention(2, 3)(inputs, inputs)
    hidden = keras.layers.LayerNormalization()(hidden)
    hidden = keras.layers.GlobalAveragePooling1D()(hidden)
    model = keras.Model(inputs, keras.layers.Dense(3)(hidden))
    before = {name: value for name, value in vars(model).items()}
    private(model, "adam", l2_norm_clip=1.0, noise_multiplier=1.0, metrics=["accuracy"])
    _, y = data()
    model.fit(np.ones((24, 4, 5), "float32"), y, batch_size=8, verbose=0)
    return model, set(before)


def objects_of(model):
    return [model, model.optimizer, *model._flatten_layers(), *model.variables, *model.metrics]


def test_no_type_and_no_attribute_of_the_package_remains(fitted):
    model, attributes = fitted
    tfdp.make_standard(model)
    for thing in objects_of(model):
        assert not type(thing).__module__.startswith(PACKAGE), thing
        for name, value in vars(thing).items():
            module = getattr(type(value), "__module__", "")
            assert not str(module).startswith(PACKAGE), (thing, name)
    assert "_privacy_state" not in vars(model)
    assert "fit" not in vars(model) and "train_step" not in vars(model)
    assert PACKAGE not in str(model.get_compile_config())
    assert type(model.optimizer) is keras.optimizers.Adam


def test_a_private_model_keeps_type_layers_and_outputs(small_model, data):
    x, _ = data()
    model = small_model()
    before = model.predict(x, verbose=0), type(model), [type(v) for v in model.layers]
    assert tfdp.make_private(model) is model
    np.testing.assert_array_equal(model.predict(x, verbose=0), before[0])
    assert type(model) is before[1] and [type(v) for v in model.layers] == before[2]
    assert PACKAGE not in str(model.get_config())


def test_a_model_made_standard_trains_as_any_keras_model(fitted, data):
    model, _ = fitted
    tfdp.make_standard(model)
    steps = int(model.optimizer.iterations)
    _, y = data()
    model.fit(np.ones((24, 4, 5), "float32"), y, batch_size=8, epochs=2, verbose=0)
    assert int(model.optimizer.iterations) == steps + 6


def test_a_model_that_is_standard_stays_as_it_is(small_model):
    model = small_model()
    model.compile("sgd", "mse")
    optimizer = model.optimizer
    assert tfdp.make_standard(model) is model and model.optimizer is optimizer


SCRIPT = """
import sys
sys.modules["tf_lowrank_dp"] = None
import keras, numpy as np
model = keras.models.load_model(sys.argv[1])
x, y = np.ones((24, 4, 5), "float32"), np.zeros(24, "int32")
np.save(sys.argv[2], model.predict(x, verbose=0))
model.fit(x, y, batch_size=8, verbose=0)
"""


def test_the_saved_file_loads_and_trains_where_the_package_is_not_importable(fitted, tmp_path):
    model, _ = fitted
    tfdp.make_standard(model).save(tmp_path / "model.keras")
    paths = [str(tmp_path / name) for name in ("model.keras", "outputs.npy")]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *paths], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    expected = model.predict(np.ones((24, 4, 5), "float32"), verbose=0)
    np.testing.assert_allclose(np.load(paths[1]), expected, rtol=1e-5)
