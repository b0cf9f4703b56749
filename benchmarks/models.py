"""Models and synthetic data that the benchmarks measure.

Every builder uses stock layers of Keras or KerasHub only and returns a `Workload`. Add a model by
writing a builder and naming it in `MODELS`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np
from keras import layers as kl

CLASSES = 10


class Workload(NamedTuple):
    """A built model with data to train it on.

    Attributes:
        model: A built `keras.Model`, not compiled, that returns logits.
        x: Inputs, one example a row, or a dict of such arrays.
        y: Integer labels, one a row or one a token.
        loss: The loss for `compile`.
    """

    model: keras.Model
    x: np.ndarray | dict[str, np.ndarray]
    y: np.ndarray
    loss: keras.losses.Loss


def _workload(model: keras.Model, x: np.ndarray, rng: np.random.Generator) -> Workload:
    y = rng.integers(0, CLASSES, size=len(x)).astype("int32")
    return Workload(model, x, y, keras.losses.SparseCategoricalCrossentropy(from_logits=True))


def _images(model: keras.Model, num_examples: int) -> Workload:
    rng = np.random.default_rng(0)
    shape = (num_examples, *model.input_shape[1:])
    return _workload(model, rng.random(shape, dtype="float32"), rng)


def transformer(
    num_examples: int = 256,
    layers: int = 4,
    width: int = 256,
    tokens: int = 64,
    vocab: int = 1000,
    heads: int = 4,
) -> Workload:
    """Transformer encoder that classifies a sequence of token ids.

    Args:
        num_examples: Number of synthetic sequences.
        layers: Number of encoder blocks.
        width: Width of the residual stream, a multiple of `heads`.
        tokens: Length of every sequence.
        vocab: Number of different tokens.
        heads: Attention heads of each block.

    Returns:
        The workload.
    """
    ids = keras.Input((tokens,), dtype="int32")
    positions = keras.ops.zeros_like(ids) + keras.ops.arange(tokens, dtype="int32")
    hidden = kl.Embedding(vocab, width)(ids) + kl.Embedding(tokens, width)(positions)
    for _ in range(layers):
        attended = kl.MultiHeadAttention(heads, width // heads)(hidden, hidden)
        hidden = kl.LayerNormalization()(kl.Add()([hidden, attended]))
        expanded = kl.Dense(4 * width, activation="gelu")(hidden)
        hidden = kl.LayerNormalization()(kl.Add()([hidden, kl.Dense(width)(expanded)]))
    logits = kl.Dense(CLASSES)(kl.GlobalAveragePooling1D()(hidden))

    rng = np.random.default_rng(0)
    x = rng.integers(0, vocab, size=(num_examples, tokens)).astype("int32")
    return _workload(keras.Model(ids, logits, name="transformer"), x, rng)


def _basic_blocks(hidden: keras.KerasTensor, widths: tuple[int, ...], blocks: int, groups: int):
    """Stages of residual blocks with two 3x3 convolutions; each but the first halves the image."""
    for width in widths:
        for block in range(blocks):
            shrink = width > widths[0] and block == 0
            stride = 2 if shrink else 1
            inner = kl.ReLU()(_normalized(hidden, width, 3, stride, groups))
            shortcut = _normalized(hidden, width, 1, stride, groups) if shrink else hidden
            inner = _normalized(inner, width, 3, 1, groups)
            hidden = kl.ReLU()(kl.Add()([shortcut, inner]))
    return kl.Dense(CLASSES)(kl.GlobalAveragePooling2D()(hidden))


def _normalized(x: keras.KerasTensor, width: int, kernel: int, stride: int, groups: int):
    x = kl.Conv2D(width, kernel, stride, padding="same", use_bias=False)(x)
    return kl.GroupNormalization(groups)(x)


def resnet20_groupnorm(num_examples: int = 256, size: int = 32, groups: int = 8) -> Workload:
    """ResNet-20 for CIFAR images (widths 16, 32, 64), group instead of batch normalization.

    Args:
        num_examples: Number of synthetic images.
        size: Height and width of the images.
        groups: Groups of each `GroupNormalization`.

    Returns:
        The workload.
    """
    image = keras.Input((size, size, 3))
    hidden = kl.ReLU()(_normalized(image, 16, kernel=3, stride=1, groups=groups))
    logits = _basic_blocks(hidden, (16, 32, 64), blocks=3, groups=groups)
    return _images(keras.Model(image, logits, name="resnet20_groupnorm"), num_examples)


def resnet18_groupnorm(num_examples: int = 80, size: int = 64, groups: int = 32) -> Workload:
    """ResNet-18 (He et al.; widths 64 to 512), group instead of batch normalization."""
    image = keras.Input((size, size, 3))
    hidden = kl.ReLU()(_normalized(image, 64, kernel=7, stride=2, groups=groups))
    hidden = kl.MaxPooling2D(3, 2, padding="same")(hidden)
    logits = _basic_blocks(hidden, (64, 128, 256, 512), blocks=2, groups=groups)
    return _images(keras.Model(image, logits, name="resnet18_groupnorm"), num_examples)


def resnet50_groupnorm(num_examples: int = 16, size: int = 224, groups: int = 32) -> Workload:
    """ResNet-50 (He et al.; bottlenecks of 64 to 512), group instead of batch normalization."""
    image = keras.Input((size, size, 3))
    hidden = kl.ReLU()(_normalized(image, 64, kernel=7, stride=2, groups=groups))
    hidden = kl.MaxPooling2D(3, 2, padding="same")(hidden)
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            stride = 2 if width > 64 and block == 0 else 1
            inner = kl.ReLU()(_normalized(hidden, width, 1, 1, groups))
            inner = kl.ReLU()(_normalized(inner, width, 3, stride, groups))
            inner = _normalized(inner, 4 * width, 1, 1, groups)
            if block == 0:
                hidden = _normalized(hidden, 4 * width, 1, stride, groups)
            hidden = kl.ReLU()(kl.Add()([hidden, inner]))
    logits = kl.Dense(CLASSES)(kl.GlobalAveragePooling2D()(hidden))
    return _images(keras.Model(image, logits, name="resnet50_groupnorm"), num_examples)


def vgg16(num_examples: int = 80, size: int = 64) -> Workload:
    """VGG-16 of `keras.applications`, 13 convolutions and three dense layers."""
    model = keras.applications.VGG16(
        weights=None,
        input_shape=(size, size, 3),
        classes=CLASSES,
        classifier_activation=None,
    )
    return _images(model, num_examples)


def convnext_tiny(num_examples: int = 80, size: int = 64) -> Workload:
    """ConvNeXt-Tiny of `keras.applications`, with its stochastic depth."""
    model = keras.applications.ConvNeXtTiny(
        weights=None,
        input_shape=(size, size, 3),
        classes=CLASSES,
        classifier_activation=None,
    )
    return _images(model, num_examples)


def lstm(num_examples: int = 512, units: int = 128) -> Workload:
    """LSTM of Lee & Kifer over the 28 rows of an image."""
    return _over_rows(kl.LSTM(units), num_examples)


def simple_rnn(num_examples: int = 512, units: int = 128) -> Workload:
    """Recurrent network of Lee & Kifer over the 28 rows of an image."""
    return _over_rows(kl.SimpleRNN(units), num_examples)


def _over_rows(recurrent: keras.layers.Layer, num_examples: int) -> Workload:
    model = keras.Sequential(
        [keras.Input((28, 28)), recurrent, kl.Dense(CLASSES)], name=f"{recurrent.name}_rows"
    )
    return _images(model, num_examples)


def decoder(
    num_examples: int = 32,
    layers: int = 2,
    width: int = 768,
    heads: int = 12,
    tokens: int = 128,
    vocab: int = 1000,
) -> Workload:
    """Language model of GPT-2's layers (KerasHub): each token is predicted from those before it.

    Args:
        num_examples: Number of synthetic sequences.
        layers: Number of decoder blocks.
        width: Width of the residual stream, a multiple of `heads`.
        heads: Attention heads of each block.
        tokens: Length of every sequence.
        vocab: Number of different tokens; the embedding and the logits share one matrix.

    Returns:
        The workload; its labels are `(num_examples, tokens)`.
    """
    import keras_hub

    backbone = keras_hub.models.GPT2Backbone(
        vocabulary_size=vocab,
        num_layers=layers,
        num_heads=heads,
        hidden_dim=width,
        intermediate_dim=4 * width,
        dropout=0.0,
        max_sequence_length=tokens,
    )
    rng = np.random.default_rng(0)
    ids = rng.integers(0, vocab, size=(num_examples, tokens + 1)).astype("int32")
    x = {"token_ids": ids[:, :-1], "padding_mask": np.ones((num_examples, tokens), "bool")}
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return Workload(keras_hub.models.GPT2CausalLM(backbone), x, ids[:, 1:], loss)


def bert_small(num_examples: int = 256, layers: int = 4, width: int = 512) -> Workload:
    """Encoder of the size of BERT-small: 4 layers of width 512, 8 heads, 64 tokens."""
    return transformer(num_examples, layers=layers, width=width, heads=8)


def wide_resnet_groupnorm(
    num_examples: int = 64,
    depth: int = 28,
    widen: int = 4,
    size: int = 32,
    groups: int = 16,
    use_bias: bool = False,
) -> Workload:
    """WRN-28-4 for CIFAR images (Zagoruyko and Komodakis), group instead of batch normalization.

    Args:
        num_examples: Number of synthetic images.
        depth: Number of layers, 4 more than a multiple of 6.
        widen: Factor of the widths 16, 32, 64.
        size: Height and width of the images.
        groups: Groups of each `GroupNormalization`.
        use_bias: Whether convolutions have a bias.

    Returns:
        The workload.
    """

    def convolve(x: keras.KerasTensor, width: int, kernel: int, stride: int) -> keras.KerasTensor:
        return kl.Conv2D(width, kernel, stride, padding="same", use_bias=use_bias)(x)

    image = keras.Input((size, size, 3))
    hidden = convolve(image, 16, kernel=3, stride=1)
    for width in (16 * widen, 32 * widen, 64 * widen):
        for block in range((depth - 4) // 6):
            stride = 2 if width > 16 * widen and block == 0 else 1
            active = kl.ReLU()(kl.GroupNormalization(groups)(hidden))
            shortcut = convolve(active, width, kernel=1, stride=stride) if block == 0 else hidden
            inner = convolve(active, width, kernel=3, stride=stride)
            inner = kl.ReLU()(kl.GroupNormalization(groups)(inner))
            hidden = kl.Add()([shortcut, convolve(inner, width, kernel=3, stride=1)])
    hidden = kl.ReLU()(kl.GroupNormalization(groups)(hidden))
    logits = kl.Dense(CLASSES)(kl.GlobalAveragePooling2D()(hidden))
    return _images(keras.Model(image, logits, name="wide_resnet_groupnorm"), num_examples)


def mlp(num_examples: int = 512, layers: int = 2) -> Workload:
    """Multi-layer perceptron of Lee & Kifer: 784 inputs, 128 and 256 sigmoid units in turn."""
    hidden = [kl.Dense((128, 256)[layer % 2], activation="sigmoid") for layer in range(layers)]
    model = keras.Sequential([keras.Input((784,)), *hidden, kl.Dense(CLASSES)], name="mlp")
    return _images(model, num_examples)


def cnn(num_examples: int = 512) -> Workload:
    """Convolutional network of Lee & Kifer: 20 and 50 kernels of 5x5, then 128 units.

    The paper states no padding, 2x2 max pooling and sigmoid as its default activation.
    """
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            kl.Conv2D(20, 5, activation="sigmoid"),
            kl.MaxPooling2D(2),
            kl.Conv2D(50, 5, activation="sigmoid"),
            kl.MaxPooling2D(2),
            kl.Flatten(),
            kl.Dense(128, activation="sigmoid"),
            kl.Dense(CLASSES),
        ],
        name="cnn",
    )
    return _images(model, num_examples)


def mnist_cnn(num_examples: int = 512, hidden: tuple[int, ...] = (32,)) -> Workload:
    """Small network of the DP-SGD tutorials, with tanh, which keeps gradient norms bounded."""
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            kl.Conv2D(16, 8, strides=2, padding="same", activation="tanh"),
            kl.MaxPooling2D(2, strides=1),
            kl.Conv2D(32, 4, strides=2, padding="valid", activation="tanh"),
            kl.MaxPooling2D(2, strides=1),
            kl.Flatten(),
            *[kl.Dense(units, activation="tanh") for units in hidden],
            kl.Dense(CLASSES),
        ],
    )
    return _images(model, num_examples)


def gep_cnn(num_examples: int = 512) -> Workload:
    """Two convolutions with max-pooling and one dense layer, as GEP's paper describes its model."""
    return mnist_cnn(num_examples, hidden=())


MODELS: dict[str, Callable[..., Workload]] = {
    "transformer": transformer,
    "bert_small": bert_small,
    "resnet20": resnet20_groupnorm,
    "wrn28_4": wide_resnet_groupnorm,
    "mlp": mlp,
    "cnn": cnn,
    "mnist_cnn": mnist_cnn,
    "gep_cnn": gep_cnn,
    "resnet18": resnet18_groupnorm,
    "resnet50": resnet50_groupnorm,
    "vgg16": vgg16,
    "convnext_tiny": convnext_tiny,
    "bert_base": functools.partial(
        transformer, layers=12, width=768, tokens=128, vocab=30522, heads=12
    ),
    "gpt2_small": functools.partial(
        decoder, layers=12, width=768, heads=12, tokens=256, vocab=50257
    ),
    "wrn28_10": functools.partial(wide_resnet_groupnorm, widen=10),
    "lstm": lstm,
    "simple_rnn": simple_rnn,
    "decoder": decoder,
}
