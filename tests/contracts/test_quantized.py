"""Adapters and biases beside frozen quantised kernels against the one-example oracle."""

import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp
from tests.contracts.case import LayerCase
from tests.contracts.checks import check, make_batch
from tests.contracts.layer_cases import build_model
from tf_lowrank_dp.layers.registry import captured_layers

L = keras.layers


def quantized(layer_class, *args, mode="int8", rank=2, adapted_first=False, **kwargs):
    """A quantised layer with an adapter, or, of rank 0, with nothing but a bias to train."""

    def call(x):
        layer = layer_class(*args, name="quantized", **kwargs)
        layer.build(x.shape)
        if not adapted_first:
            layer.quantize(mode)
        if rank:
            layer.enable_lora(rank, b_initializer="glorot_normal")
        if adapted_first:
            layer.quantize(mode)
        return layer(x)

    return lambda: call


CASES = [
    LayerCase("int8_dense", quantized(L.Dense, 4, activation="gelu"), (5,)),
    LayerCase("int8_dense_adapted_first", quantized(L.Dense, 4, adapted_first=True), (4, 5)),
    LayerCase("int8_dense_bias_only", quantized(L.Dense, 4, rank=0), (5,)),
    LayerCase("int4_dense", quantized(L.Dense, 4, mode="int4"), (5,)),
    LayerCase(
        "int8_einsum_heads",
        quantized(L.EinsumDense, "abc,cde->abde", (6, 2, 3), bias_axes="de"),
        (6, 5),
    ),
    LayerCase("int8_einsum_merge", quantized(L.EinsumDense, "abcd,cde->abe", (4, 7)), (4, 2, 3)),
    LayerCase("int8_embedding", quantized(L.Embedding, 11, 4), (6,), kind="ids"),
    LayerCase(
        "int8_table", quantized(L.ReversibleEmbedding, 11, 4), (6,), kind="ids", fallback=True
    ),
]


def build(case):
    keras.utils.set_random_seed(1)
    return build_model(case)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_trained_beside_a_quantised_kernel_equals_the_oracle(case):
    model = build(case)
    classes = [capture for _, capture in captured_layers(model)]
    assert any(c.__module__.endswith("fallback") for c in classes) == case.fallback
    check(model, make_batch(case, 3), "bookkeeping", "eager", 1e-5)


@pytest.mark.parametrize("case", CASES[:1], ids=lambda case: case.name)
def test_it_equals_the_oracle_under_xla(case):
    check(build(case), make_batch(case, 3), "bookkeeping", "xla", 1e-5)


def test_training_changes_adapter_and_bias_and_leaves_the_quantised_kernel():
    case = CASES[0]
    model = build(case)
    layer = model.get_layer("quantized")
    before = [np.array(v) for v in layer.variables]
    tfdp.make_private(model)
    model.compile(
        tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0),
        loss="mse",
        jit_compile=False,
    )
    batch = make_batch(case, 12)
    model.fit(np.array(batch["x"]), np.array(batch["y"]), batch_size=4, verbose=0)
    changed = {
        variable.name
        for variable, value in zip(layer.variables, before, strict=True)
        if np.any(np.array(variable) != value)
    }
    assert changed == {"lora_kernel_a", "lora_kernel_b", "bias"}
