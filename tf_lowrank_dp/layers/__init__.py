"""Stage 1: layers show a private step what it needs for per-example gradients.

Stock Keras layers are found by themselves, and all others are differentiated one example at a time.
What a layer of your own may need beyond that is here; `tf_lowrank_dp.extend` has the rest of the
kit for writing captures.
"""

# These register their captures.
from tf_lowrank_dp.layers import (  # noqa: F401
    convolution,
    dense,
    einsum_dense,
    embedding,
    keras_hub,
    normalization,
    recurrent,
    transposed_convolution,
)
from tf_lowrank_dp.layers.registry import register_capture
from tf_lowrank_dp.layers.whole_layers import register_fallback

__all__ = ["register_capture", "register_fallback"]
