"""Stage 1: Keras layers that can show a private step what it needs for per-example gradients.

The classes are ordinary Keras layers and may be used directly to build models; a private step
also finds the stock Keras layers by itself, so using them is never necessary.
"""

from tf_lowrank_dp.layers import keras_hub as _keras_hub  # noqa: F401  (registers by name)
from tf_lowrank_dp.layers.convolution import (
    Conv1D,
    Conv2D,
    Conv3D,
    DepthwiseConv1D,
    DepthwiseConv2D,
    SeparableConv1D,
    SeparableConv2D,
)
from tf_lowrank_dp.layers.dense import Dense
from tf_lowrank_dp.layers.einsum_dense import EinsumDense
from tf_lowrank_dp.layers.embedding import Embedding, ReversibleEmbedding
from tf_lowrank_dp.layers.normalization import (
    GroupNormalization,
    LayerNormalization,
    RMSNormalization,
)
from tf_lowrank_dp.layers.recurrent import GRU, LSTM, RNN, SimpleRNN
from tf_lowrank_dp.layers.registry import register_capture
from tf_lowrank_dp.layers.transposed_convolution import (
    Conv1DTranspose,
    Conv2DTranspose,
    Conv3DTranspose,
)
from tf_lowrank_dp.layers.whole_layers import register_fallback

__all__ = [
    "Conv1D",
    "Conv1DTranspose",
    "Conv2D",
    "Conv2DTranspose",
    "Conv3D",
    "Conv3DTranspose",
    "Dense",
    "DepthwiseConv1D",
    "DepthwiseConv2D",
    "EinsumDense",
    "Embedding",
    "GRU",
    "GroupNormalization",
    "LSTM",
    "LayerNormalization",
    "RMSNormalization",
    "RNN",
    "ReversibleEmbedding",
    "SeparableConv1D",
    "SeparableConv2D",
    "SimpleRNN",
    "register_capture",
    "register_fallback",
]
