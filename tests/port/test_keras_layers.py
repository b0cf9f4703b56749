"""Contracts of the port to Keras' layers, on the Keras that is installed."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_lowrank_dp._keras.class_names import is_stock
from tf_lowrank_dp._keras.layers import (
    embeddings_of,
    global_seed_state,
    is_functional,
    is_seed_state,
    kernel_of,
    layers_of,
    layers_without_variables,
    made_by,
    own_losses,
    own_weights,
    seed_states,
    seeds_in_reach,
    symbolic_calls,
    symbolic_inputs,
)


class Adding(keras.layers.Layer):
    """A layer that adds its sum as a loss, and has a child that does."""

    def __init__(self, child=None):
        super().__init__()
        self.child = child

    def call(self, x):
        self.add_loss(keras.ops.sum(x, axis=1))
        return x if self.child is None else self.child(x)


def test_is_stock_tells_code_of_keras_from_that_of_others():
    callback = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: None)
    assert is_stock(keras.layers.Dense) and is_stock(keras.layers.Dense(2).call)
    assert is_stock(callback.on_epoch_begin) and is_stock(is_stock)
    assert not is_stock(callback.on_epoch_end)
    assert not is_stock(Adding) and not is_stock(np.sum) and not is_stock(object())


def test_layers_whose_variables_are_yet_to_be_made_are_told_from_those_that_have_none():
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.one = keras.layers.Dense(2)
            self.other = keras.Sequential([keras.layers.Dropout(0.1), keras.layers.Dense(2)])

        def call(self, x, both=True):
            return self.other(self.one(x)) if both else self.one(x)

    model, x = Model(), keras.ops.zeros((1, 2))
    assert layers_without_variables(model)[0] is model
    model(x, both=False)
    assert layers_without_variables(model) == [model.other, model.other.layers[1]]
    model(x)
    assert layers_without_variables(model) == []


def test_layers_of_gives_each_layer_once_at_any_depth_and_parents_first():
    inner, shared = keras.layers.Dense(2), keras.layers.Dense(2)
    wrapped = keras.layers.TimeDistributed(inner)
    block = keras.Sequential([wrapped, shared, shared])
    model = keras.Sequential([keras.Input((3, 2)), block, shared])
    found = layers_of(model)
    assert found[0] is model and any(layer is shared for layer in found)
    assert len({id(layer) for layer in found}) == len(found)
    positions = [next(n for n, o in enumerate(found) if o is p) for p in (block, wrapped, inner)]
    assert positions == sorted(positions) and positions[0] > 0
    assert [id(layer) for layer in layers_of(model, include_self=False)] == [
        id(layer) for layer in found[1:]
    ]


def test_own_weights_are_those_of_no_layer_inside():
    layer = keras.layers.Dense(2, activation=keras.layers.PReLU())
    model = keras.Sequential([keras.Input((3,)), layer])
    model(np.zeros([1, 3]))
    assert own_weights(layer) == [layer.kernel, layer.bias]
    assert own_weights(layer.activation) == layer.activation.weights
    assert own_weights(model) == [] and len(model.weights) == 3


@pytest.mark.parametrize("scope", [False, True])
def test_own_losses_are_those_of_the_latest_call_and_not_of_children(scope):
    child = Adding()
    layer = Adding(child)
    model = keras.Sequential([keras.Input((2,)), layer])
    with keras.StatelessScope(collect_losses=True) if scope else tf.name_scope("none"):
        model(tf.constant([[1.0, 2.0]]))
        (own,) = own_losses(layer)
        assert own.numpy().tolist() == [3.0]
        assert len(own_losses(child)) == 1 and len(layer.losses) == 2


def test_own_losses_have_the_activity_regulariser_and_no_weight_regulariser():
    layer = keras.layers.Dense(1, activity_regularizer="l2", kernel_regularizer="l2")
    layer(tf.ones([1, 2]))
    assert len(own_losses(layer)) == 1 and len(layer.losses) == 2


def test_seed_states_decide_the_masks_of_all_dropout_layers():
    block = keras.Sequential([keras.layers.Dropout(0.5), keras.layers.GaussianNoise(1.0)])
    model = keras.Sequential([keras.Input((50,)), block])
    states = seed_states(model)
    assert len(states) == 2 and all(tuple(s.shape) == (2,) for s in states)
    assert all(is_seed_state(state) for state in states)
    before = [np.array(state) for state in states]
    first = model(tf.ones([1, 50]), training=True).numpy()
    assert (model(tf.ones([1, 50]), training=True).numpy() != first).any()
    for state, value in zip(states, before, strict=True):
        state.assign(value)
    np.testing.assert_array_equal(model(tf.ones([1, 50]), training=True), first)


def test_global_seed_state_decides_what_is_drawn_without_a_seed():
    before = np.array(global_seed_state())
    first = keras.random.uniform((5,)).numpy()
    global_seed_state().assign(before)
    np.testing.assert_array_equal(keras.random.uniform((5,)), first)
    assert is_seed_state(global_seed_state())


def test_seeds_in_reach_are_those_of_the_layers_and_the_global_one():
    model = keras.Sequential([keras.layers.Dropout(0.5), keras.layers.Dense(1)])
    states = [model.layers[0].seed_generator.state, global_seed_state()]
    assert [id(state) for state in seeds_in_reach(model)] == [*map(id, states)]


def test_weights_of_layers_are_no_seed_states():
    layer = keras.layers.Dense(1)
    layer.build((None, 2))
    assert not any(is_seed_state(variable) for variable in layer.variables)


KERNELS = {
    "dense": (keras.layers.Dense(3), (None, 4), True),
    "einsum": (keras.layers.EinsumDense("ab,bc->ac", 3), (None, 4), True),
    "conv": (keras.layers.Conv2D(3, 2), (None, 4, 4, 2), True),
    "depthwise": (keras.layers.DepthwiseConv1D(2), (None, 4, 2), False),
    "transposed": (keras.layers.Conv1DTranspose(3, 2), (None, 4, 2), False),
}


@pytest.mark.parametrize("name", KERNELS)
def test_kernel_of_is_the_variable_that_was_built_with_an_adapter_or_without(name):
    layer, shape, adaptable = KERNELS[name]
    layer.build(shape)
    (kernel,) = (v for v in layer.trainable_variables if "kernel" in v.name)
    assert kernel_of(layer) is kernel
    if adaptable:
        layer.enable_lora(1)
        assert kernel_of(layer) is kernel


@pytest.mark.parametrize("layer_class", [keras.layers.Embedding, keras.layers.ReversibleEmbedding])
def test_embeddings_of_is_the_table_that_was_built_with_an_adapter_or_without(layer_class):
    layer = layer_class(5, 2)
    layer.build((None, 3))
    (table,) = layer.trainable_variables
    assert embeddings_of(layer) is table
    layer.enable_lora(1)
    assert embeddings_of(layer) is table


class OwnModel(keras.Model):
    def call(self, x):
        return x


def test_is_functional_tells_graphs_of_layers_from_classes_with_code():
    x = keras.Input((2,))
    assert is_functional(keras.Model(x, keras.layers.Dense(1)(x)))
    assert not is_functional(OwnModel())


def test_connections_lead_from_an_output_to_the_inputs_of_the_right_call():
    first, second = keras.Input((2,), name="first"), keras.Input((2,), name="second")
    shared = keras.layers.Dense(2)
    one, two = shared(first), shared(second)
    operation, call = made_by(one + two)
    assert [id(t) for t in symbolic_calls(operation)[call]] == [id(one), id(two)]
    for output, tensor in ((one, first), (two, second)):
        layer, call = made_by(output)
        assert layer is shared
        assert [id(t) for t in symbolic_calls(layer)[call]] == [id(tensor)]
    layer, call = made_by(first)
    assert layer.name == "first" and symbolic_calls(layer)[call] == []


def test_symbolic_inputs_have_the_structure_that_the_model_takes():
    one, two = keras.Input((2,)), keras.Input((3,))
    model = keras.Model({"a": one, "b": [two]}, keras.layers.Concatenate()([one, two]))
    found = symbolic_inputs(model)
    assert found["a"].shape == (None, 2) and found["b"][0].shape == (None, 3)
    sequential = keras.Sequential([keras.layers.Dense(2)])
    assert symbolic_inputs(sequential) is None
    sequential(np.zeros((1, 4), "float32"))
    assert symbolic_inputs(sequential).shape[1:] == (4,)
    assert symbolic_inputs(keras.Model()) is None
