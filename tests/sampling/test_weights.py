"""Tests of sample and class weights, with Keras as the reference."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras.src.trainers.data_adapters import data_adapter_utils

from tf_lowrank_dp.sampling import weights

CLASS_WEIGHT = {0: 0.5, 2: 3.0}


@given(
    labels=st.lists(st.integers(0, 4), min_size=1, max_size=20),
    kind=st.sampled_from(["vector", "column", "float", "one-hot"]),
)
def test_class_weights_equal_keras(labels, kind):
    y = np.array(labels)
    y = {
        "vector": y,
        "column": y[:, None],
        "float": y.astype("float32"),
        "one-hot": np.eye(5, dtype="float32")[y],
    }[kind]
    ours = weights.class_weights_to_sample_weights(y, CLASS_WEIGHT)
    keras_weights = data_adapter_utils.class_weight_to_sample_weights(y, CLASS_WEIGHT)
    np.testing.assert_array_equal(ours, keras_weights)
    assert ours.dtype == keras_weights.dtype


@pytest.mark.parametrize(
    "y",
    [
        None,
        (np.zeros(3),),
        np.array([0.5, 1.5]),
        np.array(["a", "b"]),
        np.array([[0.4, 0.6]]),
        np.array([[1, 1]]),
        np.array([[3, 4]]),
        np.zeros((2, 3, 4)),
    ],
    ids=lambda y: type(y).__name__ if not isinstance(y, np.ndarray) else str(y.shape),
)
def test_class_weights_need_class_labels_of_one_output(y):
    with pytest.raises(ValueError, match="Pass `sample_weight` instead"):
        weights.class_weights_to_sample_weights(y, CLASS_WEIGHT)


def test_class_weight_must_be_a_dict():
    with pytest.raises(ValueError, match="dict from class index"):
        weights.class_weights_to_sample_weights(np.zeros(3), [1.0, 2.0])


def test_both_kinds_of_weights_are_refused():
    with pytest.raises(ValueError, match="both"):
        weights.resolve_sample_weight(np.zeros(3), np.ones(3), CLASS_WEIGHT)


def test_one_array_of_weights_serves_several_outputs():
    y = {"a": np.zeros(3), "b": np.zeros((3, 2))}
    weight = np.arange(3.0)
    resolved = weights.resolve_sample_weight(y, weight, None)
    assert resolved["a"] is weight
    assert resolved["b"] is weight
    with pytest.raises(ValueError, match="one weight per example"):
        weights.resolve_sample_weight(y, np.ones((3, 2)), None)


def test_integer_weights_become_floats():
    resolved = weights.resolve_sample_weight(np.zeros(2), np.array([1, 2]), None)
    assert resolved.dtype == np.float32


def test_weights_of_another_structure_are_refused():
    y = {"a": np.zeros(3), "b": np.zeros(3)}
    with pytest.raises(ValueError, match="structure of `y`"):
        weights.resolve_sample_weight(y, {"a": np.ones(3)}, None)
    with pytest.raises(ValueError, match="single output"):
        weights.resolve_sample_weight(np.zeros(3), (np.ones(3),), None)
    with pytest.raises(ValueError, match="numbers"):
        weights.resolve_sample_weight(np.zeros(3), np.array(["1"] * 3), None)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 0.5, 1e30, -1e30])
def test_a_label_that_is_no_class_stops_nobody_and_weighs_one(bad):
    found = weights.class_weights_to_sample_weights(np.array([0.0, bad, 1.0]), {0: 2.0, 1: 3.0})
    assert found.tolist() == [2.0, 1.0, 3.0]
    one_hot = np.eye(3)
    one_hot[1] = bad
    found = weights.class_weights_to_sample_weights(one_hot, {0: 2.0, 1: 4.0, 2: 3.0})
    assert found.tolist() == [2.0, 1.0, 3.0]
