"""What Keras evaluates on in arrays it evaluates on in records as well."""

import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp

ROWS = 24


class ByIndex:
    def __init__(self, x, y):
        self.rows = x, y

    def __len__(self):
        return len(self.rows[0])

    def __getitem__(self, index):
        return self.rows[0][index], self.rows[1][index]


def doubled(x, y):
    return 2.0 * x, y


@pytest.fixture(params=["arrays", "by index"])
def trained(request, private, small_model, data):
    x, y = data()
    model = private(small_model(), noise_multiplier=2.0, metrics=["accuracy"])
    source = (x, y) if request.param == "arrays" else ByIndex(x, y)
    return model, tfdp.Records(source, map=doubled), (2.0 * x, y)


@pytest.mark.parametrize("batch_size", [None, 7])
def test_values_are_those_of_the_mapped_rows(trained, batch_size):
    model, records, arrays = trained
    expected = model.evaluate(*arrays, batch_size=batch_size, verbose=0)
    np.testing.assert_allclose(
        model.evaluate(records, batch_size=batch_size, verbose=0), expected, rtol=1e-5
    )
    found = model.predict(records, batch_size=batch_size, verbose=0)
    np.testing.assert_allclose(found, model.predict(arrays[0], verbose=0), rtol=1e-5)


def test_records_validate(trained):
    model, records, arrays = trained
    history = model.fit(records, batch_size=8, epochs=2, verbose=0, validation_data=records)
    expected = model.evaluate(*arrays, verbose=0)
    found = [history.history[name][-1] for name in ("val_loss", "val_accuracy")]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_choices_by_records_that_are_trained_on_are_told(trained):
    model, records, _ = trained
    stop = keras.callbacks.EarlyStopping("val_loss")
    with pytest.warns(UserWarning, match="EarlyStopping of 'val_loss'"):
        model.fit(records, batch_size=8, verbose=0, validation_data=records, callbacks=[stop])


@pytest.mark.parametrize("way", ["evaluate", "predict"])
def test_a_sampler_is_refused(trained, way):
    model, records, _ = trained
    with pytest.raises(TypeError, match="each row is looked at once"):
        getattr(model, way)(tfdp.PoissonSampler(records, batch_size=8), verbose=0)


def test_records_beside_targets_are_refused(trained):
    model, records, (_, y) = trained
    with pytest.raises(TypeError, match="tfdp.Records alone"):
        model.fit(records, batch_size=8, verbose=0, validation_data=(records, y))
    model.fit(records, batch_size=8, verbose=0, validation_data=records)
