"""DP-LoRA as `docs/algorithms/README.md` describes it: adapters are all that is trained."""

import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp

L = keras.layers


def adapted_model():
    keras.utils.set_random_seed(0)
    inputs = keras.Input((6,), dtype="int32")
    x = L.Embedding(9, 8, name="table")(inputs)
    attention = L.MultiHeadAttention(2, 4, name="attention")
    x = L.LayerNormalization()(x + attention(x, x))
    hidden = L.Dense(8, activation="gelu", name="hidden")
    x = L.GlobalAveragePooling1D()(x + hidden(x))
    model = keras.Model(inputs, L.Dense(3, name="head")(x))
    for variable in model.trainable_variables:
        variable.trainable = False
    for layer in (attention.query_dense, attention.output_dense, hidden):
        layer.enable_lora(rank=2)
    return model


@pytest.fixture
def sentences():
    generator = np.random.default_rng(0)
    return generator.integers(0, 9, (24, 6)).astype("int32"), generator.integers(0, 3, 24)


def test_only_the_factors_of_adapters_are_trained(private, sentences):
    model = adapted_model()
    names = {v.name for v in model.trainable_variables}
    assert names == {"lora_kernel_a", "lora_kernel_b"} and len(model.trainable_variables) == 6
    private(model, "adam", noise_multiplier=1.0)
    before = [(v, np.array(v)) for v in model.variables if "seed" not in v.path]
    model.fit(*sentences, batch_size=8, verbose=0)
    changed = {v.path for v, value in before if np.any(np.array(v) != value)}
    assert changed == {v.path for v in model.trainable_variables}


def test_noise_is_added_to_the_factors_alone(sentences):
    model = adapted_model()
    optimizer = tfdp.DPSGDOptimizer("adam", l2_norm_clip=1.0, noise_multiplier=1.0)
    summary = tfdp.diagnostics.release_summary(model, optimizer)
    # query: (8, 2, r) and (r, 4); output: (2, 4, r) and (r, 8); hidden: (8, r) and (r, 8)
    assert summary.released == 2 * (8 * 2 + 4) + 2 * (2 * 4 + 8) + 2 * (8 + 8)


def test_it_trains_as_ordinary_lora_does_without_clip_and_noise(twins, sentences):
    twins(adapted_model, sentences, lambda: keras.optimizers.SGD(0.1))
