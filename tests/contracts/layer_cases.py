"""The contract list of layers: one row for each layer and option."""

import keras
from keras.src.applications.convnext import LayerScale

from tests.contracts.adapter_cases import ADAPTER_CASES
from tests.contracts.case import LayerCase as _case
from tests.contracts.case import simple as _simple
from tests.contracts.case import twice as _twice
from tests.contracts.operation_cases import NO_RULE_CASES, OPERATION_CASES
from tests.contracts.recurrent_cases import RECURRENT_CASES
from tests.contracts.table_cases import TABLE_CASES

L = keras.layers

IMAGE, SEQUENCE = (7, 6, 3), (6, 5)


class Scaled(L.Layer):
    """A user's layer with a weight of its own: goes through the fallback."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones", name="scale")

    def call(self, x):
        return x * keras.ops.tanh(self.scale) + keras.ops.mean(x, -1, keepdims=True)


class OwnTable(L.Layer):
    """A user's layer whose inputs are no floats."""

    def build(self, shape):
        self.table = self.add_weight(shape=(7, 4), name="table")

    def call(self, ids):
        return keras.ops.tanh(keras.ops.take(self.table, ids, axis=0))


class Residual(L.Layer):
    """A user's layer that owns a weight and a child."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense = L.Dense(5)

    def build(self, shape):
        self.gain = self.add_weight(shape=(), initializer="ones", name="gain")
        self.dense.build(shape)

    def call(self, x):
        return x + self.gain * self.dense(x)


class Mixed(L.Layer):
    """A user's layer with a tensor as keyword argument and two outputs."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones", name="scale")

    def call(self, x, context=None):
        return x * self.scale + context, keras.ops.tanh(context * self.scale)


def _mixed_twice(x):
    layer = Mixed()
    first, second = layer(x, context=keras.ops.flip(x, 1))
    return keras.ops.concatenate(layer(second, context=first), -1)


def _mha(causal=False, **kwargs):
    def make():
        layer = L.MultiHeadAttention(2, 3, **kwargs)
        return lambda x: layer(x, x, use_causal_mask=causal)

    return make


def _gqa():
    layer = L.GroupQueryAttention(3, 4, 2)
    return lambda x: layer(x, x)


def _attention_layers(x):
    """Those that have nothing but a scale."""
    x = L.LayerNormalization(rms_scaling=True)(x)
    return L.Attention(use_scale=True)([x, x]) + L.AdditiveAttention()([x, x])


def _convolution_in_time():
    return keras.Sequential(
        [L.ConvLSTM1D(2, 2, return_sequences=True), L.TimeDistributed(L.Conv1D(2, 2))]
    )


def _one_kernel(x):
    """Two layers that hold one variable."""
    first, second = L.Dense(5, activation="tanh"), L.Dense(5, use_bias=False)
    outputs = first(x)
    second._kernel, second.bias, second.built = first._kernel, None, True
    return second(outputs)


def _shared_small_dense():
    layer = L.Dense(2)
    return lambda x: keras.ops.concatenate([layer(x), layer(x * 2.0)], -1)


def _shared_embedding():
    layer = L.Embedding(11, 4)
    return lambda x: layer(x) + layer(keras.ops.flip(x, 1))


def _several():
    return keras.Sequential(
        [
            L.EinsumDense("abc,cd->abd", (6, 5), bias_axes="d", activation="tanh"),
            L.DepthwiseConv1D(3, padding="same"),
            L.LayerNormalization(),
        ]
    )


LAYER_CASES = [
    _case("dense", _simple(L.Dense, 4, activation="gelu"), (5,)),
    _case("dense_no_bias", _simple(L.Dense, 4, use_bias=False), (5,)),
    _case("dense_sequence", _simple(L.Dense, 40, activation="relu"), (4, 30)),
    _case("dense_sequence_small", _simple(L.Dense, 2), (9, 3)),
    _case("dense_4d", _simple(L.Dense, 3), (2, 3, 5)),
    _case("dense_shared", _twice(_simple(L.Dense, 5, activation="tanh")), (5,)),
    _case("dense_one_kernel", lambda: _one_kernel, (4, 5)),
    _case("dense_shared_materialised", _shared_small_dense, (9, 3)),
    _case("einsum_plain", _simple(L.EinsumDense, "ab,bc->ac", 4, bias_axes="c"), (5,)),
    _case(
        "einsum_heads", _simple(L.EinsumDense, "abc,cde->abde", (6, 2, 3), bias_axes="de"), SEQUENCE
    ),
    _case(
        "einsum_merge", _simple(L.EinsumDense, "abcd,cde->abe", (4, 7), bias_axes="e"), (4, 2, 3)
    ),
    _case("einsum_kernel_order", _simple(L.EinsumDense, "abc,dc->abd", (6, 8)), SEQUENCE),
    _case(
        "einsum_position_bias",
        _simple(L.EinsumDense, "abc,cd->abd", (6, 4), bias_axes="bd"),
        SEQUENCE,
    ),
    _case(
        "einsum_over_positions",
        _simple(L.EinsumDense, "abc,bd->adc", (4, 5), bias_axes="d"),
        SEQUENCE,
    ),
    _case("einsum_grouped", _simple(L.EinsumDense, "abc,bcd->abd", (6, 4)), SEQUENCE),
    _case("einsum_summed", _simple(L.EinsumDense, "abc,cd->ad", 4), SEQUENCE),
    _case("einsum_ellipsis", _simple(L.EinsumDense, "...x,xy->...y", 4, bias_axes="y"), (2, 3, 5)),
    _case("conv1d", _simple(L.Conv1D, 4, 3, activation="tanh"), (8, 3)),
    _case("conv1d_causal", _simple(L.Conv1D, 4, 3, padding="causal", dilation_rate=2), (8, 3)),
    _case("conv1d_same_strided", _simple(L.Conv1D, 4, 4, strides=2, padding="same"), (9, 3)),
    _case("conv2d", _simple(L.Conv2D, 4, 3, activation="relu"), IMAGE),
    _case("conv2d_same", _simple(L.Conv2D, 4, (3, 2), padding="same", use_bias=False), IMAGE),
    _case("conv2d_strided", _simple(L.Conv2D, 4, 3, strides=(2, 3), padding="same"), IMAGE),
    _case("conv2d_strided_valid", _simple(L.Conv2D, 4, 3, strides=2), IMAGE),
    _case("conv2d_dilated", _simple(L.Conv2D, 4, 2, dilation_rate=2), IMAGE),
    _case("conv2d_grouped", _simple(L.Conv2D, 4, 3, groups=2), (7, 6, 4)),
    _case(
        "conv2d_of_channels", _simple(L.Conv2D, 6, 3, groups=3, strides=2, padding="same"), IMAGE
    ),
    _case("conv2d_of_channels_unevenly", _simple(L.Conv2D, 3, 3, groups=3, strides=(2, 1)), IMAGE),
    _case(
        "conv1d_of_channels",
        _simple(L.Conv1D, 3, 3, groups=3, padding="causal", dilation_rate=2),
        (8, 3),
    ),
    _case("conv2d_wide", _simple(L.Conv2D, 40, 3, padding="same"), (3, 3, 20)),
    _case(
        "conv2d_shared",
        _twice(_simple(L.Conv2D, 3, 3, padding="same", activation="tanh")),
        IMAGE,
    ),
    _case("several_shared", _twice(_several), SEQUENCE),
    _case("conv3d", _simple(L.Conv3D, 3, 2, strides=2, padding="same"), (4, 5, 4, 2)),
    _case("depthwise1d", _simple(L.DepthwiseConv1D, 3, depth_multiplier=2), (8, 3)),
    _case("depthwise2d", _simple(L.DepthwiseConv2D, 3, padding="same", depth_multiplier=2), IMAGE),
    _case("depthwise2d_strided", _simple(L.DepthwiseConv2D, 3, strides=2), IMAGE),
    _case("separable1d", _simple(L.SeparableConv1D, 4, 3, depth_multiplier=2), (8, 3)),
    _case("separable2d", _simple(L.SeparableConv2D, 4, 3, padding="same", strides=2), IMAGE),
    _case("separable2d_dilated", _simple(L.SeparableConv2D, 4, 2, dilation_rate=2), IMAGE),
    _case("transposed1d", _simple(L.Conv1DTranspose, 4, 3, strides=2), (8, 3)),
    _case("transposed2d", _simple(L.Conv2DTranspose, 3, 2, activation="tanh"), IMAGE),
    _case("transposed2d_same", _simple(L.Conv2DTranspose, 4, 3, strides=2, padding="same"), IMAGE),
    _case("transposed2d_wide", _simple(L.Conv2DTranspose, 20, 2, use_bias=False), (2, 2, 30)),
    _case(
        "transposed2d_output_padding",
        _simple(L.Conv2DTranspose, 4, 3, strides=(2, 3), padding="same", output_padding=1),
        IMAGE,
    ),
    _case("transposed3d", _simple(L.Conv3DTranspose, 3, 2, strides=2), (3, 2, 2, 2)),
    _case("embedding", _simple(L.Embedding, 11, 4), (6,), kind="ids"),
    _case("embedding_shared", _shared_embedding, (6,), kind="ids"),
    *TABLE_CASES,
    *ADAPTER_CASES,
    _case("layer_norm", _simple(L.LayerNormalization), SEQUENCE),
    _case("layer_norm_axes", _simple(L.LayerNormalization, axis=(1, 2)), SEQUENCE),
    _case("layer_norm_middle", _simple(L.LayerNormalization, axis=1), SEQUENCE),
    _case("layer_norm_no_center", _simple(L.LayerNormalization, center=False), SEQUENCE),
    _case("layer_norm_no_scale", _simple(L.LayerNormalization, scale=False), SEQUENCE),
    _case("group_norm", _simple(L.GroupNormalization, 2), (5, 4, 6)),
    _case("group_norm_no_scale", _simple(L.GroupNormalization, 3, scale=False), (5, 6)),
    _case("group_norm_no_center", _simple(L.GroupNormalization, -1, center=False), (5, 6)),
    _case("group_norm_axis", _simple(L.GroupNormalization, 2, axis=1), (4, 5)),
    _case("rms_norm", _simple(L.RMSNormalization), SEQUENCE),
    _case("layer_scale", _simple(LayerScale, 0.5, 5), SEQUENCE),
    _case("attention", _mha(), SEQUENCE),
    _case(
        "attention_causal_value",
        _mha(causal=True, value_dim=4, output_shape=7, use_bias=False),
        SEQUENCE,
    ),
    _case("grouped_query_attention", lambda: _gqa(), (6, 12)),
    _case("fallback_custom", lambda: Scaled(), SEQUENCE, fallback=True),
    _case("fallback_ids", lambda: OwnTable(), (6,), kind="ids", fallback=True),
    _case("fallback_composite", lambda: Residual(), SEQUENCE, fallback=True),
    _case("fallback_prelu", _simple(L.PReLU, alpha_initializer="ones"), SEQUENCE, fallback=True),
    _case("fallback_keyword_two_outputs_shared", lambda: _mixed_twice, SEQUENCE, fallback=True),
    _case("fallback_attention_rms_scaling", lambda: _attention_layers, SEQUENCE, fallback=True),
    _case("fallback_convolution_in_time", _convolution_in_time, (2, 5, 2), fallback=True),
    *RECURRENT_CASES,
    *OPERATION_CASES,
    *NO_RULE_CASES,
]


def build_model(case, trainable_first=True):
    """`pre -> layer under test -> post`: a model with layers on both sides of the one tested."""
    inputs = keras.Input(case.shape, dtype="int32" if case.kind == "ids" else None)
    x = inputs
    if case.kind == "float":
        x = L.Dense(case.shape[-1], name="pre", trainable=trainable_first)(x)
    x = case.make()(x)
    x = L.Flatten()(x)
    return keras.Model(inputs, L.Dense(3, name="post")(x))
