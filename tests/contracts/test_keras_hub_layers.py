"""Layers of KerasHub that are captured by name, and options that no backbone of the list uses."""

import importlib

import keras
import pytest

from tests.contracts.case import LayerCase, simple
from tests.contracts.checks import check, make_batch
from tests.contracts.layer_cases import build_model
from tf_lowrank_dp.layers.registry import captured_layers

keras_hub = pytest.importorskip("keras_hub")

MODELS = "keras_hub.src.models."
NORMALIZATIONS = (
    "gemma.rms_normalization.RMSNormalization",
    "gemma3.gemma3_layers.RMSNormalization",
    "llama.llama_layernorm.LlamaLayerNorm",
    "mistral.mistral_layer_norm.MistralLayerNormalization",
    "mixtral.mixtral_layer_norm.MixtralLayerNormalization",
    "phi3.phi3_layernorm.Phi3LayerNorm",
    "qwen.qwen_layernorm.QwenLayerNorm",
    "t5.t5_layer_norm.T5LayerNorm",
)
SEQUENCE = (4, 5)


def _named(path):
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(MODELS + module), name)


def _position_embedding(**arguments):
    def make():
        layer = keras_hub.layers.PositionEmbedding(7, initializer="normal")
        return lambda x: x + layer(x, **arguments)

    return make


def _positions_of_examples():
    layer = keras_hub.layers.PositionEmbedding(7, initializer="normal")

    def call(x):
        numbers = keras.ops.cast(keras.ops.abs(x[..., 0]) * 3.0, "int32") % 7
        return x + layer(x, positions=numbers)

    return call


CASES = [
    *(LayerCase(path.split(".")[0], simple(_named(path)), SEQUENCE) for path in NORMALIZATIONS),
    LayerCase("positions", _position_embedding(), SEQUENCE),
    LayerCase("positions from the third on", _position_embedding(start_index=2), SEQUENCE),
    LayerCase("positions of each example", _positions_of_examples, SEQUENCE),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_equals_the_oracle_and_needs_no_fallback(case):
    keras.utils.set_random_seed(1)
    model = build_model(case)
    check(model, make_batch(case, 3), "bookkeeping", "graph", 1e-5)
    assert not any(c.__module__.endswith("fallback") for _, c in captured_layers(model))
