"""Text tasks of KerasHub on raw strings.

A KerasHub task takes strings: its preprocessor is part of the model. `make_private` takes the task
as it is. The encoder here is tiny and random and the sentences are made up, so that it runs
anywhere; `from_preset` in its place is fine-tuning.
"""

# %%
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import keras_hub
import numpy as np

import tf_lowrank_dp as tfdp

SMOKE = "--smoke" in sys.argv  # a few steps

# %% [markdown]
# ## Sentences
#
# The vocabulary has to be public: words that only one example has would tell that it was there. It
# is written down here, not counted.

# %%
GOOD, BAD = ["good", "fine", "lovely", "bright"], ["bad", "poor", "dull", "weak"]
OTHER = ["film", "book", "song", "was", "a", "the", "very", "quite"]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *GOOD, *BAD, *OTHER]

generator = np.random.default_rng(0)
labels = generator.integers(0, 2, 200 if SMOKE else 10_000)
texts = np.array(
    [
        " ".join(generator.permutation([*generator.choice(OTHER, 5), generator.choice(words)]))
        for words in ([BAD, GOOD][label] for label in labels)
    ]
)
print(texts[:2])

# %% [markdown]
# ## The task

# %%
tokenizer = keras_hub.models.BertTokenizer(vocabulary=VOCABULARY)
backbone = keras_hub.models.BertBackbone(
    vocabulary_size=tokenizer.vocabulary_size(),
    num_layers=1,
    num_heads=2,
    hidden_dim=16 if SMOKE else 32,
    intermediate_dim=32 if SMOKE else 64,
    max_sequence_length=12,
    dropout=0.0,
)
classifier = keras_hub.models.BertTextClassifier(
    backbone,
    num_classes=2,
    preprocessor=keras_hub.models.BertTextClassifierPreprocessor(tokenizer, sequence_length=12),
    dropout=0.0,
)

# %% [markdown]
# ## Private training
#
# Nothing else changes. Position and segment tables are frozen: each number that is trained gets
# noise.

# %%
for name in ("position_embedding", "segment_embedding"):
    backbone.get_layer(name).trainable = False
tfdp.make_private(classifier)
classifier.compile(
    tfdp.DPSGDOptimizer(
        keras.optimizers.Adam(1e-2),
        l2_norm_clip=1.0,
        epsilon=6.0,
        delta=1e-5,
        accountant="rdp" if SMOKE else "pld",
    ),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
train, batch, epochs = (len(texts) * 4 // 5, 40, 1) if SMOKE else (8000, 1000, 20)
classifier.fit(texts[:train], labels[:train], batch_size=batch, epochs=epochs, verbose=0)
new = ["the film was very good", "a quite dull book"]
found = np.argmax(classifier.predict([*texts[train:], *new], verbose=0), axis=1)
print(f"accuracy on other sentences {np.mean(found[:-2] == labels[train:]):.1%}")
print(new, found[-2:])
print(tfdp.privacy_statement(classifier))
