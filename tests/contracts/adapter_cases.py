"""Rows for adapters (`enable_lora`)."""

import keras

from tests.contracts.case import LayerCase as _case

L = keras.layers


def _adapted(layer_class, *args, rank=2, alpha=3.0, **kwargs):
    """A layer with an adapter whose second factor is not zero."""

    def call(x):
        layer = layer_class(*args, **kwargs)
        layer.build(x.shape)
        layer.enable_lora(rank, lora_alpha=alpha, b_initializer="glorot_normal")
        return layer(x)

    return lambda: call


def _shared():
    layer = L.Dense(5, activation="tanh")
    layer.build((None, 5))
    layer.enable_lora(2, b_initializer="glorot_normal")
    return lambda x: layer(layer(x))


def _attention():
    layer = L.MultiHeadAttention(2, 3)

    def call(x):
        layer.build(x.shape, x.shape)
        layer.query_dense.enable_lora(2, b_initializer="glorot_normal")
        layer.output_dense.enable_lora(2, b_initializer="glorot_normal")
        return layer(x, x)

    return call


ADAPTER_CASES = [
    _case("lora_dense", _adapted(L.Dense, 4, activation="gelu"), (5,)),
    _case("lora_dense_sequence", _adapted(L.Dense, 40, use_bias=False), (4, 30)),
    _case("lora_dense_shared", _shared, (5,)),
    _case(
        "lora_einsum_heads",
        _adapted(L.EinsumDense, "abc,cde->abde", (6, 2, 3), bias_axes="de"),
        (6, 5),
    ),
    _case("lora_einsum_merge", _adapted(L.EinsumDense, "abcd,cde->abe", (4, 7)), (4, 2, 3)),
    _case("lora_einsum_kernel_order", _adapted(L.EinsumDense, "abc,dc->abd", (6, 8)), (6, 5)),
    _case("lora_einsum_ellipsis", _adapted(L.EinsumDense, "...x,xy->...y", 4), (2, 3, 5)),
    _case("lora_einsum_grouped", _adapted(L.EinsumDense, "abc,bcd->abd", (6, 4)), (6, 5)),
    _case("lora_attention", _attention, (6, 5)),
    _case("lora_embedding", _adapted(L.Embedding, 11, 4), (6,), kind="ids"),
    _case("lora_conv1d", _adapted(L.Conv1D, 4, 3, padding="causal"), (8, 3)),
    _case("lora_conv2d", _adapted(L.Conv2D, 4, 3, strides=2, activation="relu"), (7, 6, 3)),
    _case(
        "fallback_lora_conv2d_grouped",
        _adapted(L.Conv2D, 4, 3, groups=2),
        (7, 6, 4),
        fallback=True,
    ),
]
