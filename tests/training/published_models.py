"""Small models, written as the authors of Keras' examples write theirs."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops


class Patches(layers.Layer):
    def __init__(self, patch_size):
        super().__init__()
        self.patch_size = patch_size

    def call(self, images):
        shape = ops.shape(images)
        b, h, w, c = shape[0], shape[1], shape[2], shape[3]
        n = (h // self.patch_size) * (w // self.patch_size)
        patches = keras.ops.image.extract_patches(images, size=self.patch_size)
        return ops.reshape(patches, (b, n, self.patch_size * self.patch_size * c))


class PatchEncoder(layers.Layer):
    def __init__(self, num_patches, dim):
        super().__init__()
        self.num_patches = num_patches
        self.projection = layers.Dense(units=dim)
        self.position_embedding = layers.Embedding(input_dim=num_patches, output_dim=dim)

    def call(self, patch):
        positions = ops.expand_dims(ops.arange(start=0, stop=self.num_patches, step=1), axis=0)
        return self.projection(patch) + self.position_embedding(positions)


class ClassToken(layers.Layer):
    def build(self, input_shape):
        self.hidden = input_shape[-1]
        self.cls = self.add_weight(
            name="cls", shape=(1, 1, self.hidden), initializer="zeros", trainable=True
        )
        self.pos = self.add_weight(
            name="pos", shape=(1, input_shape[1] + 1, self.hidden), initializer="random_normal"
        )
        self.drop = layers.Dropout(0.1)

    def call(self, inputs):
        b = ops.shape(inputs)[0]
        cls = ops.cast(ops.broadcast_to(self.cls, [b, 1, self.hidden]), dtype=inputs.dtype)
        return self.drop(ops.concatenate([cls, inputs], 1) + self.pos)


def mlp(x, hidden, rate):
    for units in hidden:
        x = layers.Dense(units, activation=keras.activations.gelu)(x)
        x = layers.Dropout(rate)(x)
    return x


def vit():
    inputs = keras.Input(shape=(12, 12, 3))
    x = Patches(4)(inputs)
    x = PatchEncoder(9, 16)(x)
    x = ClassToken()(x)
    for _ in range(2):
        x1 = layers.LayerNormalization(epsilon=1e-6)(x)
        a = layers.MultiHeadAttention(num_heads=2, key_dim=8, dropout=0.1)(x1, x1)
        x2 = layers.Add()([a, x])
        x3 = layers.LayerNormalization(epsilon=1e-6)(x2)
        x = layers.Add()([mlp(x3, [32, 16], 0.1), x2])
    x = layers.LayerNormalization(epsilon=1e-6)(x)
    x = layers.Lambda(lambda t: t[:, 0])(x)
    return keras.Model(inputs, layers.Dense(4)(x)), "image"


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

    def call(self, inputs):
        attn_output = self.dropout1(self.att(inputs, inputs))
        out1 = self.layernorm1(inputs + attn_output)
        return self.layernorm2(out1 + self.dropout2(self.ffn(out1)))


class TokenAndPositionEmbedding(layers.Layer):
    def __init__(self, maxlen, vocab_size, embed_dim):
        super().__init__()
        self.token_emb = layers.Embedding(input_dim=vocab_size, output_dim=embed_dim)
        self.pos_emb = layers.Embedding(input_dim=maxlen, output_dim=embed_dim)

    def call(self, x):
        maxlen = ops.shape(x)[-1]
        positions = ops.arange(start=0, stop=maxlen, step=1)
        positions = self.pos_emb(positions)
        x = self.token_emb(x)
        return x + positions


def text():
    inputs = layers.Input(shape=(16,))
    x = TokenAndPositionEmbedding(16, 50, 8)(inputs)
    x = TransformerBlock(8, 2, 16)(x)
    x = layers.GlobalAveragePooling1D()(x)
    x = layers.Dropout(0.1)(x)
    x = layers.Dense(20, activation="relu")(x)
    x = layers.Dropout(0.1)(x)
    return keras.Model(inputs, layers.Dense(4, activation="softmax")(x)), "ids"


class MLPMixerLayer(layers.Layer):
    def __init__(self, num_patches, hidden_units, dropout_rate):
        super().__init__()
        self.mlp1 = keras.Sequential(
            [
                layers.Dense(units=num_patches, activation="gelu"),
                layers.Dense(units=num_patches),
                layers.Dropout(rate=dropout_rate),
            ]
        )
        self.mlp2 = keras.Sequential(
            [
                layers.Dense(units=num_patches, activation="gelu"),
                layers.Dense(units=hidden_units),
                layers.Dropout(rate=dropout_rate),
            ]
        )
        self.normalize = layers.LayerNormalization(epsilon=1e-6)

    def build(self, input_shape):
        return super().build(input_shape)

    def call(self, inputs):
        x = self.normalize(inputs)
        x_channels = ops.transpose(x, axes=(0, 2, 1))
        mlp1_outputs = ops.transpose(self.mlp1(x_channels), axes=(0, 2, 1))
        x = mlp1_outputs + inputs
        return x + self.mlp2(self.normalize(x))


class FNetLayer(layers.Layer):
    def __init__(self, embedding_dim, dropout_rate):
        super().__init__()
        self.ffn = keras.Sequential(
            [
                layers.Dense(units=embedding_dim, activation="gelu"),
                layers.Dropout(rate=dropout_rate),
                layers.Dense(units=embedding_dim),
            ]
        )
        self.normalize1 = layers.LayerNormalization(epsilon=1e-6)
        self.normalize2 = layers.LayerNormalization(epsilon=1e-6)

    def call(self, inputs):
        real_part, im_part = inputs, keras.ops.zeros_like(inputs)
        x = keras.ops.fft2((real_part, im_part))[0]
        x = self.normalize1(x + inputs)
        return self.normalize2(self.ffn(x) + x)


class gMLPLayer(layers.Layer):
    def __init__(self, num_patches, embedding_dim, dropout_rate):
        super().__init__()
        self.channel_projection1 = keras.Sequential(
            [
                layers.Dense(units=embedding_dim * 2, activation="gelu"),
                layers.Dropout(rate=dropout_rate),
            ]
        )
        self.channel_projection2 = layers.Dense(units=embedding_dim)
        self.spatial_projection = layers.Dense(units=num_patches, bias_initializer="Ones")
        self.normalize1 = layers.LayerNormalization(epsilon=1e-6)
        self.normalize2 = layers.LayerNormalization(epsilon=1e-6)

    def spatial_gating_unit(self, x):
        u, v = keras.ops.split(x, indices_or_sections=2, axis=2)
        v = self.normalize2(v)
        v = keras.ops.transpose(v, axes=(0, 2, 1))
        v = self.spatial_projection(v)
        return u * keras.ops.transpose(v, axes=(0, 2, 1))

    def call(self, inputs):
        x = self.channel_projection1(self.normalize1(inputs))
        x = self.spatial_gating_unit(x)
        return inputs + self.channel_projection2(x)


def patch_model(block):
    inputs = layers.Input(shape=(12, 12, 3))
    x = Patches(4)(inputs)
    x = layers.Dense(units=16)(x)
    x = x + layers.Embedding(input_dim=9, output_dim=16)(ops.arange(start=0, stop=9, step=1))
    x = keras.Sequential([block() for _ in range(2)])(x)
    x = layers.GlobalAveragePooling1D()(x)
    x = layers.Dropout(0.1)(x)
    return keras.Model(inputs, layers.Dense(4)(x)), "image"


class PositionEmbedding(keras.layers.Layer):
    def __init__(self, sequence_length, initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        self.sequence_length = int(sequence_length)
        self.initializer = keras.initializers.get(initializer)

    def build(self, input_shape):
        self.position_embeddings = self.add_weight(
            name="embeddings",
            shape=[self.sequence_length, input_shape[-1]],
            initializer=self.initializer,
            trainable=True,
        )

    def call(self, inputs, start_index=0):
        shape = keras.ops.shape(inputs)
        feature_length, sequence_length = shape[-1], shape[-2]
        position_embeddings = keras.ops.convert_to_tensor(self.position_embeddings)
        position_embeddings = keras.ops.slice(
            position_embeddings, (start_index, 0), (sequence_length, feature_length)
        )
        return keras.ops.broadcast_to(position_embeddings, shape)


def mixer_pos():
    inputs = layers.Input(shape=(12, 12, 3))
    x = Patches(4)(inputs)
    x = layers.Dense(16)(x)
    x = x + PositionEmbedding(sequence_length=9)(x)
    x = MLPMixerLayer(9, 16, 0.1)(x)
    x = layers.GlobalAveragePooling1D()(x)
    return keras.Model(inputs, layers.Dense(4)(x)), "image"


def convmixer():
    inputs = keras.Input((12, 12, 3))
    x = layers.Rescaling(scale=1.0 / 255)(inputs)
    x = layers.Conv2D(16, 2, strides=2)(x)
    x = layers.GroupNormalization(4)(layers.Activation("gelu")(x))
    for _ in range(2):
        x0 = x
        x = layers.DepthwiseConv2D(kernel_size=3, padding="same")(x)
        x = layers.Add()([layers.GroupNormalization(4)(layers.Activation("gelu")(x)), x0])
        x = layers.Conv2D(16, kernel_size=1)(x)
        x = layers.GroupNormalization(4)(layers.Activation("gelu")(x))
    return keras.Model(
        inputs, layers.Dense(4, activation="softmax")(layers.GlobalAvgPool2D()(x))
    ), "image"


class RecommenderNet(keras.Model):
    def __init__(self, num_users, num_movies, embedding_size, **kwargs):
        super().__init__(**kwargs)
        regularizer = keras.regularizers.l2(1e-6)
        self.user_embedding = layers.Embedding(
            num_users, embedding_size, "he_normal", embeddings_regularizer=regularizer
        )
        self.user_bias = layers.Embedding(num_users, 1)
        self.movie_embedding = layers.Embedding(
            num_movies, embedding_size, "he_normal", embeddings_regularizer=regularizer
        )
        self.movie_bias = layers.Embedding(num_movies, 1)

    def call(self, inputs):
        user_vector = self.user_embedding(inputs[:, 0])
        user_bias = self.user_bias(inputs[:, 0])
        movie_vector = self.movie_embedding(inputs[:, 1])
        movie_bias = self.movie_bias(inputs[:, 1])
        dot_user_movie = ops.sum(user_vector * movie_vector, axis=1, keepdims=True)
        return ops.nn.sigmoid(dot_user_movie + user_bias + movie_bias)


def recommender():
    m = RecommenderNet(50, 50, 8)
    m(np.zeros((2, 2), "int32"))
    return m, "pairs"


class Cross(layers.Layer):
    def build(self, shape):
        self.w = self.add_weight(shape=(shape[0][-1], shape[0][-1]), initializer="glorot_uniform")
        self.b = self.add_weight(shape=(shape[0][-1],))

    def call(self, inputs):
        x0, x = inputs
        return x0 * (ops.matmul(x, self.w) + self.b) + x


class CrossV1(layers.Layer):
    def build(self, shape):
        self.w = self.add_weight(shape=(shape[0][-1], 1), initializer="glorot_uniform")
        self.b = self.add_weight(shape=(shape[0][-1],))

    def call(self, inputs):
        x0, x = inputs
        return x0 * tf.tensordot(x, self.w, axes=[[1], [0]]) + self.b + x


def dcn():
    i = keras.Input((10,))
    x0 = layers.Dense(8)(i)
    x = x0
    for c in (Cross, CrossV1, Cross):
        x = c()([x0, x])
    return keras.Model(i, layers.Dense(4)(x)), "rows"


class TabTransformer(keras.Model):
    def __init__(self):
        super().__init__()
        self.emb = [layers.Embedding(20, 8) for _ in range(3)]
        self.column = layers.Embedding(3, 8)
        self.att = layers.MultiHeadAttention(2, 8, dropout=0.1)
        self.n = layers.LayerNormalization()
        self.o = layers.Dense(4)
        self.num = layers.LayerNormalization()
        self.indices = tf.range(start=0, limit=3, delta=1)

    def call(self, inputs, training=None):
        cat = ops.stack([e(inputs["cat"][:, i]) for i, e in enumerate(self.emb)], 1)
        cat = cat + self.column(self.indices)
        cat = self.n(cat + self.att(cat, cat, training=training))
        return self.o(ops.concatenate([ops.reshape(cat, (-1, 24)), self.num(inputs["num"])], -1))


def tab():
    m = TabTransformer()
    m({"cat": np.zeros((2, 3), "int32"), "num": np.zeros((2, 5), "float32")})
    return m, "table"


class GatedLinearUnit(layers.Layer):
    def __init__(self, units):
        super().__init__()
        self.linear = layers.Dense(units)
        self.sigmoid = layers.Dense(units, activation="sigmoid")

    def call(self, inputs):
        return self.linear(inputs) * self.sigmoid(inputs)


class GatedResidualNetwork(layers.Layer):
    def __init__(self, units, dropout_rate):
        super().__init__()
        self.units = units
        self.elu_dense = layers.Dense(units, activation="elu")
        self.linear_dense = layers.Dense(units)
        self.dropout = layers.Dropout(dropout_rate)
        self.gated_linear_unit = GatedLinearUnit(units)
        self.layer_norm = layers.LayerNormalization()
        self.project = layers.Dense(units)

    def call(self, inputs):
        x = self.dropout(self.linear_dense(self.elu_dense(inputs)))
        if inputs.shape[-1] != self.units:
            inputs = self.project(inputs)
        return self.layer_norm(inputs + self.gated_linear_unit(x))


def grn():
    i = keras.Input((10,))
    x = GatedResidualNetwork(8, 0.1)(i)
    return keras.Model(i, layers.Dense(4)(x)), "rows"


def external_attention(x, dim, num_heads):
    _, num_patch, channel = x.shape
    num_heads = num_heads * 2
    x = layers.Dense(dim * 2)(x)
    x = ops.reshape(x, (-1, num_patch, num_heads, dim * 2 // num_heads))
    x = ops.transpose(x, axes=[0, 2, 1, 3])
    attn = layers.Dense(dim // 2)(x)
    attn = layers.Softmax(axis=2)(attn)
    attn = layers.Lambda(
        lambda a: ops.divide(a, ops.convert_to_tensor(1e-9) + ops.sum(a, axis=-1, keepdims=True))
    )(attn)
    attn = layers.Dropout(0.1)(attn)
    x = layers.Dense(dim * 2 // num_heads)(attn)
    x = ops.transpose(x, axes=[0, 2, 1, 3])
    x = ops.reshape(x, [-1, num_patch, dim * 2])
    return layers.Dropout(0.1)(layers.Dense(dim)(x))


class PatchEmbedding(layers.Layer):
    def __init__(self, num_patch, embed_dim):
        super().__init__()
        self.num_patch = num_patch
        self.proj = layers.Dense(embed_dim)
        self.pos_embed = layers.Embedding(input_dim=num_patch, output_dim=embed_dim)

    def call(self, patch):
        pos = ops.arange(start=0, stop=self.num_patch, step=1)
        return self.proj(patch) + self.pos_embed(pos)


def eanet():
    i = keras.Input((12, 12, 3))
    x = Patches(4)(i)
    x = PatchEmbedding(9, 16)(x)
    r = x
    x = layers.LayerNormalization()(x)
    x = external_attention(x, 16, 2) + r
    return keras.Model(
        i, layers.Dense(4, activation="softmax")(layers.GlobalAveragePooling1D()(x))
    ), "image"


def siamese():
    i = keras.Input((12, 12, 3))
    x = layers.Conv2D(8, 3, activation="tanh")(i)
    x = layers.AveragePooling2D(2)(x)
    x = layers.Flatten()(x)
    tower = keras.Model(i, layers.Dense(10, activation="tanh")(x))
    a, b = keras.Input((12, 12, 3)), keras.Input((12, 12, 3))
    d = layers.Lambda(
        lambda v: ops.sqrt(
            ops.maximum(
                ops.sum(ops.square(v[0] - v[1]), axis=1, keepdims=True), keras.backend.epsilon()
            )
        ),
        output_shape=(1,),
    )([tower(a), tower(b)])
    return keras.Model([a, b], layers.Dense(1, activation="sigmoid")(d)), "twins"


class Autoencoder(keras.Model):
    def __init__(self):
        super().__init__()
        self.encoder = keras.Sequential(
            [
                layers.Conv2D(8, 3, activation="relu", padding="same", strides=2),
                layers.Conv2D(4, 3, activation="relu", padding="same", strides=2),
            ]
        )
        self.decoder = keras.Sequential(
            [
                layers.Conv2DTranspose(4, 3, strides=2, activation="relu", padding="same"),
                layers.Conv2DTranspose(8, 3, strides=2, activation="relu", padding="same"),
                layers.Conv2D(3, 3, padding="same", activation="sigmoid"),
            ]
        )

    def call(self, x):
        return self.decoder(self.encoder(x))


def auto():
    m = Autoencoder()
    m(np.zeros((2, 12, 12, 3), "float32"))
    return m, "same"


def squash(v):
    n = ops.sum(ops.square(v), -1, keepdims=True)
    return n / (1 + n) * v / ops.sqrt(n + keras.backend.epsilon())


class Capsule(layers.Layer):
    def __init__(self, n, d, routings=2):
        super().__init__()
        self.n, self.d, self.r = n, d, routings

    def build(self, s):
        self.W = self.add_weight(
            shape=(self.n, s[1], s[2], self.d), initializer="glorot_uniform", name="W"
        )

    def call(self, u):
        u_hat = ops.einsum("bip,nipd->bnid", u, self.W)
        b = ops.zeros_like(u_hat[..., 0])
        for i in range(self.r):
            c = ops.softmax(b, axis=1)
            v = squash(ops.einsum("bni,bnid->bnd", c, u_hat))
            if i < self.r - 1:
                b = b + ops.einsum("bnd,bnid->bni", v, u_hat)
        return v


def capsule():
    i = keras.Input((12, 12, 3))
    x = layers.Conv2D(8, 5, strides=3, activation="relu")(i)
    x = layers.Reshape((-1, 4))(x)
    x = Capsule(4, 6)(x)
    return keras.Model(
        i, layers.Lambda(lambda t: ops.sqrt(ops.sum(ops.square(t), -1) + 1e-7))(x)
    ), "image"


def wavenet():
    i = keras.Input((32, 1))
    x = layers.Conv1D(8, 2, padding="causal")(i)
    skips = []
    for rate in (1, 2, 4, 8):
        f = layers.Conv1D(8, 2, dilation_rate=rate, padding="causal", activation="tanh")(x)
        g = layers.Conv1D(8, 2, dilation_rate=rate, padding="causal", activation="sigmoid")(x)
        z = layers.Conv1D(8, 1)(layers.Multiply()([f, g]))
        x = layers.Add()([x, z])
        skips.append(z)
    return keras.Model(
        i, layers.Dense(4)(layers.GlobalAveragePooling1D()(layers.ReLU()(layers.Add()(skips))))
    ), "wave"


class Sampling(layers.Layer):
    def call(self, inputs):
        m, v = inputs
        b = tf.shape(m)[0]
        d = tf.shape(m)[1]
        return m + tf.exp(0.5 * v) * tf.random.normal(shape=(b, d))


class LayerScale(layers.Layer):
    def __init__(self, init, dim):
        super().__init__()
        self.init, self.dim = init, dim
        self.inner = layers.Dense(dim)
        self.drop = layers.Dropout(0.2)

    def build(self, s):
        self.gamma = self.add_weight(
            shape=(self.dim,), initializer=keras.initializers.Constant(self.init)
        )
        self.inner.build(s)

    def call(self, x):
        return x + self.drop(self.inner(x)) * self.gamma


def sampler():
    i = keras.Input((10,))
    x = LayerScale(0.1, 10)(i)
    return keras.Model(
        i, layers.Dense(4)(Sampling()([layers.Dense(5)(x), layers.Dense(5)(x)]))
    ), "rows"


MODELS = {
    "vit": vit,
    "text": text,
    "mixer": lambda: patch_model(lambda: MLPMixerLayer(9, 16, 0.1)),
    "fnet": lambda: patch_model(lambda: FNetLayer(16, 0.1)),
    "gmlp": lambda: patch_model(lambda: gMLPLayer(9, 16, 0.1)),
    "mixer_pos": mixer_pos,
    "convmixer": convmixer,
    "recommender": recommender,
    "dcn": dcn,
    "tab": tab,
    "grn": grn,
    "eanet": eanet,
    "siamese": siamese,
    "auto": auto,
    "capsule": capsule,
    "wavenet": wavenet,
    "sampler": sampler,
}
