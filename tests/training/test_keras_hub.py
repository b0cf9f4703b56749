"""A KerasHub task trains on raw strings: its own preprocessor is applied to what was sampled."""

import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.accounting import LedgerEntry, PrivacyLedger, Sampling

keras_hub = pytest.importorskip("keras_hub")

POSITIVE, NEGATIVE = ("good film", "fine film", "good book"), ("bad film", "poor film", "bad book")
TEXTS = np.array([*POSITIVE, *NEGATIVE] * 4)
LABELS = np.array([1, 1, 1, 0, 0, 0] * 4)
DELTA, NOISE_MULTIPLIER, BATCH_SIZE, EPOCHS = 1e-3, 0.1, 12, 10


def build():
    """A BERT classifier with one small layer, eleven words and its preprocessor."""
    keras.utils.set_random_seed(0)
    words = sorted({word for text in TEXTS for word in str(text).split()})
    tokenizer = keras_hub.tokenizers.BertTokenizer(
        vocabulary=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    )
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=tokenizer.vocabulary_size(),
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
        max_sequence_length=5,
        dropout=0.0,
    )
    preprocessor = keras_hub.models.BertTextClassifierPreprocessor(tokenizer, sequence_length=5)
    model = keras_hub.models.BertTextClassifier(
        backbone, num_classes=2, dropout=0.0, preprocessor=preprocessor
    )
    generator = np.random.default_rng(0)
    for variable in model.trainable_variables:  # BERT's own are too small to learn in a few steps
        if variable.path.endswith(("kernel", "embeddings")):
            variable.assign(generator.normal(0.0, 0.3, variable.shape))
    return model


def loss_of(model):
    return model.evaluate(TEXTS, LABELS, verbose=0, return_dict=True)["loss"]


@pytest.fixture(scope="module")
def trained():
    """The private classifier after its training, with the loss before it and Keras' history."""
    model = tfdp.make_private(build())
    model.compile(
        tfdp.DPSGDOptimizer(
            keras.optimizers.SGD(1.0, momentum=0.5),
            l2_norm_clip=1.0,
            noise_multiplier=NOISE_MULTIPLIER,
            delta=DELTA,
            accountant="rdp",
            seed=1,  # or it might once in a while not learn
        ),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
    )
    before = loss_of(model)
    evaluate = type(model).evaluate

    def evaluate_strings(self, *args, **kwargs):
        """Some versions of KerasHub preprocess here what `fit` has preprocessed already."""
        assert "_use_cached_eval_dataset" not in kwargs
        return evaluate(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(model), "evaluate", evaluate_strings)
        history = model.fit(
            TEXTS,
            LABELS,
            batch_size=BATCH_SIZE,
            epochs=EPOCHS,
            verbose=0,
            validation_data=(TEXTS, LABELS),
            validation_freq=EPOCHS,
        ).history
    return model, before, history


def test_it_learns_from_strings(trained):
    model, before, _ = trained
    assert loss_of(model) < 0.9 * before


def test_every_step_is_recorded(trained):
    sampling = Sampling.poisson(len(TEXTS), BATCH_SIZE)
    entry = LedgerEntry(sampling, NOISE_MULTIPLIER, steps=EPOCHS * 2)
    expected = PrivacyLedger([entry]).epsilon(DELTA, accountant="rdp")
    assert tfdp.privacy_spent(trained[0]) == pytest.approx(expected)


def test_validation_strings_are_preprocessed_once(trained):
    model, _, history = trained
    assert history["val_loss"][-1] == pytest.approx(loss_of(model), rel=1e-4)


def test_prediction_takes_strings_and_equals_that_of_preprocessed_ones(trained):
    model = trained[0]
    logits = model.predict(TEXTS[:6], verbose=0)
    assert logits.shape == (6, 2)
    by_hand = model(model.preprocessor(TEXTS[:6]), training=False)
    np.testing.assert_allclose(logits, by_hand, rtol=1e-4, atol=1e-5)
