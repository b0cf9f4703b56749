"""KerasHub tasks of each family train on raw strings and images, with their own preprocessors."""

import functools
import io
import string

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp

keras_hub = pytest.importorskip("keras_hub")
sentencepiece = pytest.importorskip("sentencepiece")

LENGTH, SIZE, BATCH_SIZE = 12, 8, 4
TEXTS = np.array(["good film", "bad film", "fine book", "poor book"] * 2)
IMAGES = np.random.default_rng(0).uniform(0.0, 255.0, (SIZE, 8, 8, 3)).astype("float32")
LABELS = np.array([1, 0, 1, 0] * 2)

SMALL = {"num_layers": 1, "hidden_dim": 8, "intermediate_dim": 12}
ENCODER = {**SMALL, "num_heads": 2, "max_sequence_length": LENGTH, "dropout": 0.0}
DECODER = {**SMALL, "num_query_heads": 2, "num_key_value_heads": 1}


def words():
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return {"vocabulary": [*special, *sorted(set(" ".join(TEXTS).split()))]}


def letters(*special):
    tokens = [*special, *string.ascii_lowercase, "Ġ", "go"]
    return {"vocabulary": {token: n for n, token in enumerate(tokens)}, "merges": ["g o"]}


@functools.cache
def pieces():
    """One SentencePiece model with the special tokens of every family."""
    special = ["[CLS]", "[SEP]", "[MASK]", "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([str(text) for text in TEXTS]),
        model_writer=model,
        vocab_size=40,
        hard_vocab_limit=False,
        pad_id=0,
        unk_id=1,
        bos_id=2,
        eos_id=3,
        user_defined_symbols=special,
        minloglevel=3,
    )
    return {"proto": model.getvalue()}


def of_texts(family, task, vocabulary, backbone, lengths=None, **options):
    """The task `<family><task>` of KerasHub on texts without labels."""

    def part(name):
        return getattr(keras_hub.models, family + name)

    tokenizer = part("Tokenizer")(**vocabulary)
    lengths = lengths or {"sequence_length": LENGTH}
    model = part(task)(
        part("Backbone")(vocabulary_size=tokenizer.vocabulary_size(), **backbone),
        preprocessor=part(f"{task}Preprocessor")(tokenizer, **lengths),
        **options,
    )
    return model, TEXTS, None


def classifier(family, vocabulary, **backbone):
    options = {"num_classes": 2, "dropout": 0.0}
    model, x, _ = of_texts(family, "TextClassifier", vocabulary, ENCODER | backbone, **options)
    return model, x, LABELS


def t5():
    lengths = {"encoder_sequence_length": LENGTH, "decoder_sequence_length": LENGTH}
    backbone = {**SMALL, "num_heads": 2, "dropout": 0.0}
    model, x, _ = of_texts("T5", "Seq2SeqLM", pieces(), backbone, lengths)
    return model, {"encoder_text": x, "decoder_text": x}, None


def vit():
    backbone = keras_hub.models.ViTBackbone(
        (8, 8, 3), (4, 4), num_layers=1, num_heads=2, hidden_dim=8, mlp_dim=12
    )
    converter = keras_hub.layers.ViTImageConverter(image_size=(8, 8))
    preprocessor = keras_hub.models.ViTImageClassifierPreprocessor(converter)
    model = keras_hub.models.ViTImageClassifier(backbone, 2, preprocessor=preprocessor)
    return model, IMAGES, LABELS


TASKS = {
    "roberta": lambda: classifier("Roberta", letters("<s>", "<pad>", "</s>", "<mask>")),
    "distil_bert": lambda: classifier("DistilBert", words()),
    "albert": lambda: classifier("Albert", pieces(), embedding_dim=4),
    "gpt2": lambda: of_texts("GPT2", "CausalLM", letters("<|endoftext|>"), ENCODER),
    "llama": lambda: of_texts("Llama", "CausalLM", pieces(), DECODER),
    "mistral": lambda: of_texts("Mistral", "CausalLM", pieces(), DECODER),
    "gemma": lambda: of_texts("Gemma", "CausalLM", pieces(), DECODER | {"head_dim": 4}),
    "t5": t5,
    "vit": vit,
}


def private(model):
    tfdp.make_private(model)
    model.compile(
        tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0, delta=1e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
    )
    return model


def check_training(model, x, y):
    """Two steps move every weight, are in the ledger and need no fallback."""
    before = [np.array(v) for v in model.trainable_variables]
    model.fit(x, y, batch_size=BATCH_SIZE, verbose=0)
    for v, w in zip(model.trainable_variables, before, strict=True):
        assert np.all(np.isfinite(v)) and np.any(np.asarray(v) != w), v.path
    assert model.optimizer.ledger.num_steps == SIZE // BATCH_SIZE
    assert "fallback" not in tfdp.explain(model)


@pytest.mark.parametrize("name", TASKS)
def test_a_task_trains_on_raw_data(name):
    keras.utils.set_random_seed(0)
    model, x, y = TASKS[name]()
    check_training(private(model), x, y)


def test_a_masked_language_model_of_bert_trains_once_its_unused_pooled_output_is_frozen():
    keras.utils.set_random_seed(0)
    lengths = {"sequence_length": LENGTH, "mask_selection_length": 2}
    model, x, y = of_texts("Bert", "MaskedLM", words(), ENCODER, lengths)
    private(model)
    with pytest.raises(tfdp.UnsupportedModelError, match="(?s)pooled_dense.*Freeze"):
        model.fit(x, y, batch_size=BATCH_SIZE, verbose=0)
    assert tfdp.privacy_spent(model) == 0.0
    model.backbone.get_layer("pooled_dense").trainable = False
    check_training(model, x, y)


@pytest.mark.parametrize("before", ["nothing", "evaluated", "made private and evaluated"])
def test_no_word_of_a_text_is_kept_in_what_is_exported(before, tmp_path):
    model, _, _ = TASKS["gpt2"]()
    texts = ["secretword go", "go"] * 4
    if before == "evaluated":
        model.evaluate(texts, batch_size=BATCH_SIZE, verbose=0)
    private(model)
    if before == "made private and evaluated":
        model.evaluate(texts, batch_size=BATCH_SIZE, verbose=0)
    model.fit(texts, batch_size=BATCH_SIZE, verbose=0)
    model.export(tmp_path / "exported", verbose=False)
    tf.train.Checkpoint(model=model).write(str(tmp_path / "checkpoint"))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) >= 4
    for path in files:
        content = path.read_bytes()
        assert b"secretword" not in content and b"s e c r e t" not in content, path


class Counting(keras_hub.models.GPT2CausalLMPreprocessor):
    """Keeps in a table which texts it has seen."""

    def call(self, x, y=None, sample_weight=None, sequence_length=None):
        x = tf.convert_to_tensor(x)
        SEEN.insert(x, tf.ones_like(x, tf.int64))
        return super().call(x, y, sample_weight, sequence_length)


SEEN = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, 0)


def test_a_preprocessor_that_writes_to_a_table_is_refused():
    model, x, _ = TASKS["gpt2"]()
    model.preprocessor = Counting(model.preprocessor.tokenizer, sequence_length=LENGTH)
    with pytest.raises(tfdp.UnsupportedModelError, match="(?s)LookupTableInsert.*may keep"):
        private(model).fit(x, batch_size=BATCH_SIZE, verbose=0)
    assert tfdp.privacy_spent(model) == 0.0
    assert SEEN.size() == 0


def test_a_copy_of_a_task_without_batch_normalisation_says_how_it_is_trained():
    converter = keras_hub.layers.ResNetImageConverter(image_size=(8, 8), scale=1.0 / 255.0)
    backbone = keras_hub.models.ResNetBackbone(
        [64], [3], [64], [1], [1], block_type="basic_block", use_pre_activation=False,
        image_shape=(8, 8, 3),
    )  # fmt: skip
    preprocessor = keras_hub.models.ResNetImageClassifierPreprocessor(converter)
    task = keras_hub.models.ResNetImageClassifier(backbone, 2, preprocessor=preprocessor)
    images = np.random.default_rng(0).integers(0, 256, (SIZE, 12, 12, 3)).astype("uint8")
    labels = np.arange(SIZE) % 2
    with pytest.raises(tfdp.UnsupportedModelError, match="replace_batch_normalization"):
        private(task).fit(images, labels, batch_size=BATCH_SIZE, verbose=0)
    with pytest.warns(UserWarning, match="without one.*preprocessor.x, y.` of the task"):
        copy = tfdp.replace_batch_normalization(tfdp.make_standard(task))
    x, y = preprocessor(images, labels)
    private(copy).fit(np.array(x), np.array(y), batch_size=BATCH_SIZE, verbose=0)
    assert copy.optimizer.ledger.num_steps == SIZE // BATCH_SIZE
