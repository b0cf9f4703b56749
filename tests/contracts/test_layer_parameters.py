"""Roles and matrix views of kernels, tables and adapters, and how `explain` tells of them."""

import keras
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tests.release.engines import space_of
from tf_lowrank_dp.layers.parameters import describe_parameters
from tf_lowrank_dp.layers.recorder import Recorder
from tf_lowrank_dp.layers.registry import capturing

L = keras.layers


def adapted(layer, *shape):
    layer.build((None, *shape))
    layer.enable_lora(2)
    return layer


def described(*layers, dtype=None):
    model = keras.Sequential([keras.Input((6, 5)[: 1 if dtype else 2], dtype=dtype), *layers])
    found = describe_parameters(model)
    return {
        parameter.path.rpartition("/")[2]: (
            parameter.role,
            parameter.view and (parameter.view.rows, parameter.view.columns),
        )
        for parameter in found
    }


@pytest.mark.parametrize(("layer_class", "gates"), [(L.SimpleRNN, 1), (L.LSTM, 4), (L.GRU, 3)])
def test_kernels_of_recurrent_layers_are_matrices(layer_class, gates):
    found = described(layer_class(3))
    assert found["kernel"] == ("kernel", (5, 3 * gates))
    assert found["recurrent_kernel"] == ("kernel", (3, 3 * gates))
    assert found["bias"] == ("other", None)


def test_adapters_have_a_role_of_their_own():
    dense = described(adapted(L.Dense(4), 6, 5))
    assert dense["lora_kernel_a"] == ("lora", (5, 2))
    assert dense["lora_kernel_b"] == ("lora", (2, 4))
    table = described(adapted(L.Embedding(11, 4), 6), dtype="int32")
    assert table["lora_embeddings_a"] == ("lora", (11, 2))
    assert table["lora_embeddings_b"] == ("lora", (2, 4))


def test_low_rank_optimizers_leave_adapters_as_they_are():
    model = keras.Sequential([keras.Input((40,)), adapted(L.Dense(40), 40), L.Dense(2)])
    optimizer = tfdp.RGPOptimizer("sgd", rank=1, l2_norm_clip=1.0, noise_multiplier=1.0, delta=1e-3)
    assert space_of(optimizer, model).ranks == {}


def test_a_frozen_kernel_beside_an_adapter_is_not_recorded():
    model = keras.Sequential([keras.Input((5,)), adapted(L.Dense(4), 5)])
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        with capturing(model), Recorder(model.trainable_variables, tape) as recorder:
            model(tf.ones((2, 5)))
    names = [variable.name for site in recorder.sites for variable, _ in site.builders]
    assert names == ["lora_kernel_a", "lora_kernel_b", "bias"]


def test_explain_tells_how_tables_and_adapters_are_differentiated():
    tied = L.ReversibleEmbedding(11, 4)
    inputs = keras.Input((6,), dtype="int32")
    text = tfdp.explain(keras.Model(inputs, tied(tied(inputs), reverse=True)))
    assert "rows looked up, outer product where reversed" in text
    model = keras.Sequential([keras.Input((5,)), adapted(L.Dense(4), 5)])
    assert "no kernel gradient" in tfdp.explain(model)
