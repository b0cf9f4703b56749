"""Text: characters, classification, language models, translation, tags."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from tests.compatibility.case import Run, example, integers, one_hot
from tests.compatibility.sequences import MORONEY
from tests.compatibility.vision import KERAS_IO

CHOLLET = "fchollet/deep-learning-with-python-notebooks"
SENTENCES = np.array([["the cat sat"], ["a dog ran far"], ["the end"], ["birds fly"]])


@example(KERAS_IO, "examples/nlp/addition_rnn.py", "sums as characters, booleans, encoder-decoder")
def addition():
    model = keras.Sequential()
    model.add(layers.LSTM(8, input_shape=(5, 6)))
    model.add(layers.RepeatVector(3))
    model.add(layers.LSTM(8, return_sequences=True))
    model.add(layers.Dense(6, activation="softmax"))
    x, y = one_hot(6, 32, 5).astype(bool), one_hot(6, 32, 3).astype(bool)
    fit = dict(x=x, y=y, batch_size=8, epochs=1, validation_data=(x, y))
    return Run(model, fit, dict(loss="categorical_crossentropy", metrics=["accuracy"]))


@example(MORONEY, "chapter8/irish-songs.ipynb", "next word, two bidirectional LSTMs, no batch size")
def irish_songs():
    model = keras.Sequential()
    model.add(layers.Embedding(20, 4))
    model.add(layers.Bidirectional(layers.LSTM(4, return_sequences="True")))
    model.add(layers.Bidirectional(layers.LSTM(4)))
    model.add(layers.Dense(20, activation="softmax"))
    fit = dict(x=integers(20, 40, 6), y=one_hot(20, 40), verbose=1)
    return Run(model, fit, dict(loss="categorical_crossentropy", metrics=["accuracy"]))


def reviews():
    text = SENTENCES[integers(4, 32)][:, 0]
    return tf.data.Dataset.from_tensor_slices((text, integers(2, 32)))


@example(
    "tensorflow/text",
    "docs/tutorials/text_classification_rnn.ipynb",
    "strings: `TextVectorization` inside of the model, as long as the longest of the batch, masked",
    statement=dict(batch_size=8, num_examples=32),
)
def strings():
    data = reviews().shuffle(32).batch(8)
    encoder = layers.TextVectorization(max_tokens=20)  # as long as the longest
    encoder.adapt(data.map(lambda text, label: text))
    model = keras.Sequential(
        [
            encoder,
            layers.Embedding(20, 4, mask_zero=True),
            layers.Bidirectional(layers.LSTM(4)),
            layers.Dense(4, activation="relu"),
            layers.Dense(1),
        ]
    )
    losses = dict(loss=keras.losses.BinaryCrossentropy(from_logits=True), metrics=["accuracy"])
    fit = dict(x=data, validation_data=data, validation_steps=2)
    return Run(model, fit, losses, keras.optimizers.Adam(1e-4))


class TransformerBlock(layers.Layer):
    def __init__(self, embed_dim, num_heads, ff_dim, rate=0.1):
        super().__init__()
        self.att = layers.MultiHeadAttention(num_heads=num_heads, key_dim=embed_dim)
        self.ffn = keras.Sequential(
            [layers.Dense(ff_dim, activation="relu"), layers.Dense(embed_dim)]
        )
        self.layernorm1 = layers.LayerNormalization(epsilon=1e-6)
        self.layernorm2 = layers.LayerNormalization(epsilon=1e-6)
        self.dropout1 = layers.Dropout(rate)
        self.dropout2 = layers.Dropout(rate)

    def call(self, inputs, training=None):
        attended = self.dropout1(self.att(inputs, inputs), training=training)
        out1 = self.layernorm1(inputs + attended)
        return self.layernorm2(out1 + self.dropout2(self.ffn(out1), training=training))


class TokenAndPositionEmbedding(layers.Layer):
    def __init__(self, maxlen, vocab_size, embed_dim):
        super().__init__()
        self.token_emb = layers.Embedding(input_dim=vocab_size, output_dim=embed_dim)
        self.pos_emb = layers.Embedding(input_dim=maxlen, output_dim=embed_dim)

    def call(self, x):
        positions = self.pos_emb(tf.range(start=0, limit=tf.shape(x)[-1], delta=1))
        return self.token_emb(x) + positions


class NERModel(keras.Model):
    def __init__(self, num_tags, vocab_size, maxlen, embed_dim, num_heads, ff_dim):
        super().__init__()
        self.embedding_layer = TokenAndPositionEmbedding(maxlen, vocab_size, embed_dim)
        self.transformer_block = TransformerBlock(embed_dim, num_heads, ff_dim)
        self.dropout1 = layers.Dropout(0.1)
        self.ff = layers.Dense(ff_dim, activation="relu")
        self.dropout2 = layers.Dropout(0.1)
        self.ff_final = layers.Dense(num_tags, activation="softmax")

    def call(self, inputs, training=False):
        x = self.transformer_block(self.embedding_layer(inputs))
        x = self.ff(self.dropout1(x, training=training))
        return self.ff_final(self.dropout2(x, training=training))


class TokenLoss(keras.losses.Loss):
    """Divides by the number of tokens of all examples together."""

    def call(self, y_true, y_pred):
        loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=False, reduction=None)
        mask = tf.cast(y_true > 0, dtype=tf.float32)
        loss = loss_fn(y_true, y_pred) * mask
        return tf.reduce_sum(loss) / tf.reduce_sum(mask)


@example(
    KERAS_IO,
    "examples/nlp/ner_transformers.py",
    "tags: subclassed transformer, not built, `padded_batch`, a loss class that divides by the "
    "tokens of the batch: an example's loss is that of a batch of it alone",
    statement=dict(batch_size=8, num_examples=32),
)
def entities():
    data = tf.data.Dataset.from_tensor_slices((integers(20, 32, 6), integers(4, 32, 6)))
    model = NERModel(4, 20, 10, 8, 2, 8)
    return Run(model, dict(x=data.padded_batch(8)), dict(loss=TokenLoss()))


class MultiHeadSelfAttention(layers.Layer):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.projection_dim = embed_dim // num_heads
        self.query_dense = layers.Dense(embed_dim)
        self.key_dense = layers.Dense(embed_dim)
        self.value_dense = layers.Dense(embed_dim)
        self.combine_heads = layers.Dense(embed_dim)

    def separate_heads(self, x, batch_size):
        x = tf.reshape(x, (batch_size, -1, self.num_heads, self.projection_dim))
        return tf.transpose(x, perm=[0, 2, 1, 3])

    def call(self, inputs):
        batch_size = tf.shape(inputs)[0]
        query = self.separate_heads(self.query_dense(inputs), batch_size)
        key = self.separate_heads(self.key_dense(inputs), batch_size)
        value = self.separate_heads(self.value_dense(inputs), batch_size)
        score = tf.matmul(query, key, transpose_b=True)
        score = score / tf.math.sqrt(tf.cast(tf.shape(key)[-1], tf.float32))
        i, j = tf.range(tf.shape(score)[2])[:, None], tf.range(tf.shape(score)[3])
        mask = tf.cast(i >= j, score.dtype)
        score = score * mask - 1e4 * (1 - mask)
        attended = tf.transpose(tf.matmul(tf.nn.softmax(score, -1), value), perm=[0, 2, 1, 3])
        return self.combine_heads(tf.reshape(attended, (batch_size, -1, self.embed_dim)))


class CausalBlock(TransformerBlock):
    def __init__(self, embed_dim, num_heads, ff_dim):
        super().__init__(embed_dim, num_heads, ff_dim)
        self.att = MultiHeadSelfAttention(embed_dim, num_heads)

    def call(self, inputs):
        out1 = self.layernorm1(inputs + self.dropout1(self.att(inputs)))
        return self.layernorm2(out1 + self.dropout2(self.ffn(out1)))


class Generator(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        y, _ = self.model.predict(np.zeros((1, 6), "int32"), verbose=0)
        self.token = int(np.argmax(y[0][-1]))


@example(
    KERAS_IO,
    "examples/generative/text_generation_with_miniature_gpt.py",
    "miniature GPT: `loss=[loss, None]` for two outputs, a callback that generates text",
    statement=dict(batch_size=8, num_examples=24),
)
def miniature_gpt():
    inputs = layers.Input(shape=(6,), dtype=tf.int32)
    x = CausalBlock(8, 2, 8)(TokenAndPositionEmbedding(6, 20, 8)(inputs))
    model = keras.Model(inputs=inputs, outputs=[layers.Dense(20)(x), x])
    vectorize = layers.TextVectorization(max_tokens=19, output_sequence_length=7)
    text = SENTENCES[integers(4, 24)][:, 0]
    vectorize.adapt(text)

    def shifted(text):
        tokens = vectorize(tf.expand_dims(text, -1))
        return tokens[:, :-1], tokens[:, 1:]

    data = tf.data.Dataset.from_tensor_slices(text).shuffle(24).batch(8).map(shifted)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    fit = dict(x=data.prefetch(2), callbacks=[Generator()])
    return Run(model, fit, dict(loss=[loss, None]))


class TransformerEncoder(keras.Layer):
    def __init__(self, hidden_dim, intermediate_dim, num_heads):
        super().__init__()
        self.self_attention = layers.MultiHeadAttention(num_heads, hidden_dim // num_heads)
        self.self_attention_layernorm = layers.LayerNormalization()
        self.feed_forward_1 = layers.Dense(intermediate_dim, activation="relu")
        self.feed_forward_2 = layers.Dense(hidden_dim)
        self.feed_forward_layernorm = layers.LayerNormalization()

    def call(self, source, source_mask):
        mask = source_mask[:, None, :]
        x = self.self_attention(query=source, key=source, value=source, attention_mask=mask)
        x = self.self_attention_layernorm(x + source)
        return self.feed_forward_layernorm(self.feed_forward_2(self.feed_forward_1(x)) + x)


class TransformerDecoder(TransformerEncoder):
    def __init__(self, hidden_dim, intermediate_dim, num_heads):
        super().__init__(hidden_dim, intermediate_dim, num_heads)
        self.cross_attention = layers.MultiHeadAttention(num_heads, hidden_dim // num_heads)
        self.cross_attention_layernorm = layers.LayerNormalization()

    def call(self, target, source, source_mask):
        x = self.self_attention(query=target, key=target, value=target, use_causal_mask=True)
        x = self.self_attention_layernorm(x + target)
        mask = source_mask[:, None, :]
        y = self.cross_attention(query=x, key=source, value=source, attention_mask=mask)
        x = self.cross_attention_layernorm(y + x)
        return self.feed_forward_layernorm(self.feed_forward_2(self.feed_forward_1(x)) + x)


@example(
    CHOLLET,
    "chapter15_language-models-and-the-transformer.ipynb",
    "translation: masks as arguments, dict of inputs, weights that mask padding",
    statement=dict(batch_size=8, num_examples=24),
)
def translation():
    source = keras.Input(shape=(None,), dtype="int32", name="english")
    x = layers.Embedding(20, 8)(source)
    encoded = TransformerEncoder(8, 8, 2)(source=x, source_mask=source != 0)
    target = keras.Input(shape=(None,), dtype="int32", name="spanish")
    x = layers.Embedding(20, 8)(target)
    x = TransformerDecoder(8, 8, 2)(target=x, source=encoded, source_mask=source != 0)
    outputs = layers.Dense(20, activation="softmax")(layers.Dropout(0.5)(x))
    english, spanish = integers(20, 24, 5), integers(20, 24, 6)
    table = {"english": english, "spanish": spanish[:, :-1]}
    data = (table, spanish[:, 1:], (spanish[:, 1:] != 0).astype("float32"))
    data = tf.data.Dataset.from_tensor_slices(data).batch(8).shuffle(8).cache()
    losses = dict(loss="sparse_categorical_crossentropy", weighted_metrics=["accuracy"])
    fit = dict(x=data, validation_data=data)
    return Run(keras.Model([source, target], outputs), fit, losses)


@example(
    KERAS_IO,
    "examples/nlp/lstm_seq2seq.py",
    "characters: encoder's states start the decoder, list of inputs, `validation_split`",
)
def seq2seq():
    encoder_inputs = keras.Input(shape=(None, 6))
    _, *states = layers.LSTM(8, return_state=True)(encoder_inputs)
    decoder_inputs = keras.Input(shape=(None, 5))
    x, _, _ = layers.LSTM(8, return_sequences=True, return_state=True)(
        decoder_inputs, initial_state=states
    )
    model = keras.Model([encoder_inputs, decoder_inputs], layers.Dense(5, "softmax")(x))
    fit = dict(
        x=[one_hot(6, 40, 4), one_hot(5, 40, 3)],
        y=one_hot(5, 40, 3),
        batch_size=8,
        validation_split=0.2,
    )
    losses = dict(loss="categorical_crossentropy", metrics=["accuracy"])
    return Run(model, fit, losses, "rmsprop")


@example(
    KERAS_IO,
    "examples/nlp/pretrained_word_embeddings.py",
    "frozen embedding, convolutions of varying length, words looked up beforehand",
)
def frozen_embedding():
    embedding = layers.Embedding(20, 6, trainable=False)
    embedding.build((1,))
    inputs = keras.Input(shape=(None,), dtype="int32")
    x = layers.Conv1D(4, 5, activation="relu")(embedding(inputs))
    x = layers.MaxPooling1D(2)(x)
    x = layers.GlobalMaxPooling1D()(layers.Conv1D(4, 3, activation="relu")(x))
    x = layers.Dropout(0.5)(layers.Dense(4, activation="relu")(x))
    model = keras.Model(inputs, layers.Dense(3, activation="softmax")(x))
    x, y = integers(20, 32, 16), integers(3, 32)
    fit = dict(x=x, y=y, batch_size=8, validation_data=(x, y))
    losses = dict(loss="sparse_categorical_crossentropy", metrics=["acc"])
    return Run(model, fit, losses, "rmsprop")


EXAMPLES = [
    addition,
    irish_songs,
    strings,
    entities,
    miniature_gpt,
    translation,
    seq2seq,
    frozen_embedding,
]
