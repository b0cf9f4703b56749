"""Contracts of the port to what holds while a layer is called, on the Keras that is installed."""

import keras
import pytest
import tensorflow as tf

from tf_lowrank_dp._keras.scopes import (
    attach_mask,
    attach_masks,
    autocast,
    autocast_dtype,
    call_context,
    created_variables,
    in_call_context,
    in_stateless_scope,
    is_refused_variable,
    mask_of,
    masks_of,
    trial_scope,
    values_in_scope,
)


class Reading(keras.layers.Layer):
    """Notes in which dtypes its weight is read."""

    def build(self, input_shape):
        self.w = self.add_weight(shape=(1,), name="w")

    def call(self, x):
        self.scope = autocast_dtype()
        self.inside = tf.convert_to_tensor(self.w).dtype
        with autocast(None):
            self.own = tf.convert_to_tensor(self.w).dtype
            self.none = autocast_dtype()
        with autocast("float16"):
            self.half = tf.convert_to_tensor(self.w).dtype
        return x


def test_autocast_decides_the_dtype_of_weights_and_autocast_dtype_tells_it():
    layer = Reading(dtype="mixed_bfloat16")
    layer(tf.ones([1, 1]))
    assert layer.scope == "bfloat16" and layer.inside == tf.bfloat16
    assert layer.own == tf.float32 and layer.none is None
    assert layer.half == tf.float16
    assert autocast_dtype() is None


def test_mask_of_is_the_mask_that_a_layer_computed():
    ids = tf.constant([[1, 0]])
    outputs = keras.layers.Embedding(3, 2, mask_zero=True)(ids)
    assert mask_of(outputs).numpy().tolist() == [[True, False]]
    assert mask_of(tf.ones([1])) is None


def test_an_attached_mask_reaches_the_next_layer_and_a_loss():
    x = tf.constant([[[1.0], [2.0], [4.0]]])
    attach_mask(x, tf.constant([[True, False, True]]))
    assert keras.layers.GlobalAveragePooling1D()(x).numpy().tolist() == [[2.5]]
    loss = keras.losses.MeanSquaredError()(tf.zeros([1, 3, 1]), x)
    assert float(loss) == pytest.approx((1.0 + 16.0) / 2)


def test_created_variables_are_those_of_the_scope():
    assert created_variables() == []
    with keras.StatelessScope(initialize_variables=False):
        variable = keras.Variable(lambda shape, dtype: tf.zeros(shape, dtype), shape=(2,))
        assert [id(v) for v in created_variables()] == [id(variable)]
    with keras.StatelessScope():
        pass
    assert created_variables() == []


def test_is_refused_variable_tells_the_error_of_a_variable_in_a_scope_from_others():
    with pytest.raises(ValueError) as error, keras.StatelessScope():
        keras.Variable([1.0])
    assert is_refused_variable(error.value)
    with pytest.raises(ValueError) as other:
        keras.layers.Activation("of another name")
    assert not is_refused_variable(other.value)


def test_a_stateless_scope_is_noticed_while_it_is_open():
    assert not in_stateless_scope()
    with keras.StatelessScope():
        assert in_stateless_scope()
    assert not in_stateless_scope()


def test_masks_go_by_position():
    tensors = {"a": tf.zeros([2, 3]), "b": tf.zeros([2, 3])}
    attach_mask(tensors["b"], tf.ones([2, 3], tf.bool))
    masks = masks_of(tensors)
    assert list(masks) == [1]
    others = {"a": tf.zeros([2, 3]), "b": tf.zeros([2, 3])}
    attach_masks(others, masks)
    assert mask_of(others["a"]) is None and mask_of(others["b"]) is masks[1]


def test_values_in_scope_are_read_and_the_scopes_own_come_back():
    first, second = keras.Variable([1.0]), keras.Variable([2.0])
    with keras.StatelessScope([(first, tf.constant([3.0]))]):
        with values_in_scope([(first, tf.constant([4.0])), (second, tf.constant([5.0]))]):
            assert [float(first[0]), float(second[0])] == [4.0, 5.0]
        assert [float(first[0]), float(second[0])] == [3.0, 2.0]


def test_a_trial_scope_begins_with_the_values_of_the_open_one_and_forgets_changes():
    variable, other = keras.Variable([1.0]), keras.Variable([2.0])
    with keras.StatelessScope([(variable, tf.constant([3.0]))]):
        with trial_scope():
            assert float(variable[0]) == 3.0
            variable.assign([4.0])
            other.assign([5.0])
        assert [float(variable[0]), float(other[0])] == [3.0, 2.0]
    with trial_scope():
        other.assign([5.0])
    assert float(other[0]) == 2.0


class Parent(keras.layers.Layer):
    """Notes the context in which it is called; its dropout knows `training` from that alone."""

    def __init__(self):
        super().__init__()
        self.dropout = keras.layers.Dropout(0.999)

    def call(self, x):
        self.context = call_context()
        return self.dropout(x)


@pytest.mark.parametrize("training", [True, False])
def test_a_layer_that_is_called_in_an_earlier_context_knows_what_was_known_then(training):
    layer, x = Parent(), tf.ones([1, 100])
    layer(x, training=training)
    with in_call_context(layer.context):
        outputs = layer.call(x)
    assert call_context() is None
    assert bool(tf.reduce_all(outputs == x)) != training
