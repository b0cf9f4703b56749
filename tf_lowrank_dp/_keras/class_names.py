"""Full names of classes that are not exported, or not imported here because KerasHub is not.

A layer whose class has moved is not recognised any more and goes through the fallback.
"""

from __future__ import annotations

_STOCK = ("keras", "keras_hub", "tf_lowrank_dp")

LAYER_SCALE = "keras.src.applications.convnext.LayerScale"

_MODELING = "keras_hub.src.layers.modeling."
_MODELS = "keras_hub.src.models."

REVERSIBLE_EMBEDDING = _MODELING + "reversible_embedding.ReversibleEmbedding"
POSITION_EMBEDDING = _MODELING + "position_embedding.PositionEmbedding"
MASKED_LM_HEAD = _MODELING + "masked_lm_head.MaskedLMHead"
ROOT_MEAN_SQUARE = (
    _MODELS + "llama.llama_layernorm.LlamaLayerNorm",
    _MODELS + "mistral.mistral_layer_norm.MistralLayerNormalization",
    _MODELS + "mixtral.mixtral_layer_norm.MixtralLayerNormalization",
    _MODELS + "phi3.phi3_layernorm.Phi3LayerNorm",
    _MODELS + "qwen.qwen_layernorm.QwenLayerNorm",
)
GEMMA_NORMALIZATION = (
    _MODELS + "gemma.rms_normalization.RMSNormalization",
    _MODELS + "gemma3.gemma3_layers.RMSNormalization",
)
T5_NORMALIZATION = _MODELS + "t5.t5_layer_norm.T5LayerNorm"
T5_ATTENTION = _MODELS + "t5.t5_multi_head_attention.T5MultiHeadAttention"
VIT_PATCHES = _MODELS + "vit.vit_layers.ViTPatchingAndEmbedding"


def is_stock(code: object) -> bool:
    """Whether a class or function is of Keras, KerasHub or this library."""
    return (getattr(code, "__module__", None) or "").partition(".")[0] in _STOCK
