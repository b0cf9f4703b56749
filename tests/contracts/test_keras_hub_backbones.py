"""Backbones of KerasHub with small random weights against the one-example-at-a-time oracle."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tests.contracts.checks import check, check_probe, losses_of
from tests.contracts.release_spaces import check_release_spaces
from tests.oracle import per_example_gradients
from tf_lowrank_dp.layers.registry import captured_layers

keras_hub = pytest.importorskip("keras_hub")

SIZE, LENGTH, WORDS = 3, 6, 23
SMALL = {"vocabulary_size": WORDS, "num_layers": 2, "hidden_dim": 8, "intermediate_dim": 12}
ENCODER = {**SMALL, "num_heads": 2, "max_sequence_length": LENGTH + 2, "dropout": 0.0}


def pooled(outputs):
    return keras.layers.GlobalAveragePooling1D()(outputs)


def with_logits(backbone):
    """The tied or untied projection back to the vocabulary."""
    return pooled(backbone.token_embedding(backbone.output, reverse=True))


def bert():
    backbone = keras_hub.models.BertBackbone(**ENCODER)
    return backbone, backbone.output["pooled_output"]


def albert():
    backbone = keras_hub.models.AlbertBackbone(embedding_dim=5, **{**ENCODER, "num_layers": 3})
    return backbone, backbone.output["pooled_output"]


def distil_bert():
    backbone = keras_hub.models.DistilBertBackbone(**ENCODER)
    return backbone, pooled(backbone.output)


def roberta():
    backbone = keras_hub.models.RobertaBackbone(**ENCODER)
    return backbone, pooled(backbone.output)


def masked_language_model():
    backbone = keras_hub.models.RobertaBackbone(**ENCODER)
    head = keras_hub.layers.MaskedLMHead(token_embedding=backbone.token_embedding)
    positions = keras.ops.cast(backbone.input["token_ids"][:, :2] % LENGTH, "int32")
    return backbone, pooled(head(backbone.output, positions))


def untied_masked_language_model():
    backbone = keras_hub.models.DistilBertBackbone(**ENCODER)
    head = keras_hub.layers.MaskedLMHead(vocabulary_size=5, activation="tanh")
    positions = keras.ops.cast(backbone.input["token_ids"][:, :2] % LENGTH, "int32")
    return backbone, pooled(head(backbone.output, positions))


def gpt2():
    backbone = keras_hub.models.GPT2Backbone(**ENCODER)
    return backbone, with_logits(backbone)


def llama():
    backbone = keras_hub.models.LlamaBackbone(num_query_heads=4, num_key_value_heads=2, **SMALL)
    return backbone, with_logits(backbone)


def mistral():
    backbone = keras_hub.models.MistralBackbone(num_query_heads=4, num_key_value_heads=2, **SMALL)
    return backbone, with_logits(backbone)


def gemma():
    backbone = keras_hub.models.GemmaBackbone(
        num_query_heads=2, num_key_value_heads=1, head_dim=4, **SMALL
    )
    return backbone, with_logits(backbone)


def t5():
    backbone = keras_hub.models.T5Backbone(num_heads=2, dropout=0.0, **SMALL)
    return backbone, pooled(backbone.output["decoder_sequence_output"])


def vit():
    backbone = keras_hub.models.ViTBackbone(
        (8, 8, 3), (4, 4), num_layers=2, num_heads=2, hidden_dim=8, mlp_dim=12
    )
    return backbone, backbone.output[:, 0]


def whisper():
    backbone = keras_hub.models.WhisperBackbone(
        num_heads=2,
        num_mels=4,
        max_encoder_sequence_length=2 * LENGTH,
        max_decoder_sequence_length=LENGTH,
        **SMALL,
    )
    both = [pooled(output) for output in backbone.output.values()]
    return backbone, keras.layers.Concatenate()(both)


FAMILIES = [
    bert,
    albert,
    distil_bert,
    roberta,
    masked_language_model,
    untied_masked_language_model,
    gpt2,
    llama,
    mistral,
    gemma,
    t5,
    vit,
    whisper,
]


def build(family):
    """The family's model with three outputs and weights large enough to matter."""
    keras.utils.set_random_seed(1)
    backbone, outputs = family()
    model = keras.Model(backbone.input, keras.layers.Dense(3, name="head")(outputs))
    generator = np.random.default_rng(0)
    for variable in model.trainable_variables:
        variable.assign_add(generator.normal(0.0, 0.2, variable.shape).astype("float32"))
    return model


def make_batch(model, size=SIZE):
    generator = np.random.default_rng(2)

    def values(tensor):
        shape = (size, *(LENGTH if length is None else length for length in tensor.shape[1:]))
        if "mask" in tensor.name:
            return np.arange(LENGTH)[None] < generator.integers(3, LENGTH + 1, (size, 1))
        if tensor.dtype == "int32":
            words = 2 if "segment" in tensor.name else WORDS
            return generator.integers(0, words, shape)
        return generator.normal(size=shape)

    x = keras.tree.map_structure(
        lambda t: tf.constant(values(t), tf.as_dtype(t.dtype)), model.input
    )
    return {"x": x, "y": tf.constant(generator.normal(size=(size, 3)), tf.float32)}


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_backbone_equals_oracle(family):
    model = build(family)
    check(model, make_batch(model), "bookkeeping", "graph", 1e-5)


@pytest.mark.parametrize("family", [albert, gpt2, t5, vit], ids=lambda family: family.__name__)
def test_every_release_space_gives_the_gradient_where_nothing_is_left_out(family):
    model = build(family)
    batch = make_batch(model)
    expected = per_example_gradients(model, losses_of(model), batch)
    check_release_spaces(model, batch, expected, 1e-5)


@pytest.mark.parametrize("family", [gpt2, t5], ids=lambda family: family.__name__)
def test_backbone_equals_oracle_under_xla(family):
    model = build(family)
    check(model, make_batch(model), "bookkeeping", "xla", 1e-5)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_no_layer_needs_the_fallback_and_the_probe_accepts_all(family):
    model = build(family)
    check_probe(model, make_batch(model))
    classes = {layer.path: capture.__module__ for layer, capture in captured_layers(model)}
    assert not [path for path, module in classes.items() if module.endswith("fallback")]
    assert "fallback" not in tfdp.explain(model)


def test_a_backbone_with_adapters_equals_oracle():
    keras.utils.set_random_seed(1)
    backbone, outputs = bert()
    backbone.enable_lora(2)
    model = keras.Model(backbone.input, keras.layers.Dense(3, name="head")(outputs))
    names = {v.name for v in model.trainable_variables if "head" not in v.path}
    assert names == {"lora_kernel_a", "lora_kernel_b", "bias"}
    check(model, make_batch(model), "bookkeeping", "eager", 1e-5)


def test_a_frozen_backbone_records_its_head_only():
    keras.utils.set_random_seed(1)
    backbone, outputs = bert()
    backbone.trainable = False
    model = keras.Model(backbone.input, keras.layers.Dense(3, name="head")(outputs))
    assert [layer.name for layer, _ in captured_layers(model)] == ["head"]
    check(model, make_batch(model), "bookkeeping", "graph", 1e-5)
