"""Vision models with small random weights against the one-example-at-a-time oracle."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.applications import convnext, densenet, mobilenet, resnet

import tf_lowrank_dp as tfdp
from tests.contracts.checks import check, check_probe, losses_of
from tests.contracts.release_spaces import check_release_spaces
from tests.oracle import per_example_gradients
from tf_lowrank_dp.layers.registry import captured_layers

L = keras.layers
SIZE, IMAGE = 3, (8, 8, 3)


def conv(filters, size=3, **kwargs):
    return L.Conv2D(filters, size, padding="same", **kwargs)


def group_norm(x):
    return L.Activation("relu")(L.GroupNormalization(2)(x))


def resnet_with_frozen_batch_norm(x):
    """The bottleneck blocks of `keras.applications.ResNet50`."""
    x = resnet.stack_residual_blocks_v1(conv(4)(x), 2, 2, stride1=1, name="one")
    return resnet.stack_residual_blocks_v1(x, 3, 1, name="two")


def resnet_of_version_2(x):
    return resnet.stack_residual_blocks_v2(conv(4)(x), 2, 2, name="one")


def resnet_with_group_norm(x):
    x = group_norm(conv(4, use_bias=False)(x))
    for filters, strides in ((4, 1), (6, 2)):
        y = group_norm(conv(filters, use_bias=False, strides=strides)(x))
        y = L.GroupNormalization(2)(conv(filters, use_bias=False)(y))
        if strides > 1:
            x = L.GroupNormalization(2)(conv(filters, 1, use_bias=False, strides=2)(x))
        x = L.Activation("relu")(L.Add()([x, y]))
    return x


def wide_resnet(x):
    """Normalisation and activation before each convolution, dropout between them."""
    x = conv(4)(x)
    for filters, strides in ((8, 1), (12, 2)):
        y = group_norm(x)
        shortcut = conv(filters, 1, strides=strides, use_bias=False)(y)
        y = group_norm(conv(filters, strides=strides, use_bias=False)(y))
        x = shortcut + conv(filters, use_bias=False)(L.Dropout(0.0)(y))
    return group_norm(x)


def vgg(x):
    for filters in (4, 6):
        x = conv(filters, activation="relu")(conv(filters, activation="relu")(x))
        x = L.MaxPooling2D()(x)
    return L.Dense(20, activation="relu")(L.Flatten()(x))


def convnext_blocks(x):
    """The step between stages of `keras.applications.ConvNeXtTiny`, and a block."""
    x = L.Conv2D(4, 2, strides=2)(L.LayerNormalization()(x))
    return convnext.ConvNeXtBlock(4, layer_scale_init_value=0.5, name="block")(x)


def mobilenet_blocks(x):
    """The blocks of `keras.applications.MobileNet`."""
    x = mobilenet._conv_block(x, 4, 1.0)
    x = mobilenet._depthwise_conv_block(x, 6, 1.0, 1, block_id=1)
    return mobilenet._depthwise_conv_block(x, 8, 1.0, 1, strides=(2, 2), block_id=2)


def dense_net(x):
    x = densenet.dense_block(conv(4)(x), 2, "one")
    return densenet.dense_block(densenet.transition_block(x, 0.1, "pool"), 1, "two")


def xception(x):
    """Separable convolutions with a residual connection."""
    y = group_norm(L.SeparableConv2D(6, 3, padding="same", use_bias=False)(L.ReLU()(conv(4)(x))))
    return L.MaxPooling2D()(conv(6, 1)(x) + L.SeparableConv2D(6, 3, padding="same")(y))


def resnext(x):
    """Grouped convolutions."""
    x = conv(8, 1)(x)
    return x + conv(8, 1)(group_norm(conv(8, groups=4)(group_norm(conv(8, 1)(x)))))


def u_net(x):
    """Transposed convolutions and connections across."""
    fine = conv(4, activation="tanh")(x)
    coarse = conv(6, strides=2, activation="tanh")(fine)
    back = L.Conv2DTranspose(4, 2, strides=2)(coarse)
    return conv(4, activation="tanh")(L.Concatenate()([fine, back]))


def attention_on_images(x):
    """Attention over the pixels, then a gate for each channel."""
    x = conv(6, 4, strides=4)(x)
    pixels = L.Reshape((4, 6))(x)
    pixels = pixels + L.MultiHeadAttention(2, 3)(pixels, pixels)
    gates = L.Dense(6, activation="sigmoid")(L.GlobalAveragePooling1D(keepdims=True)(pixels))
    return L.LayerNormalization()(pixels * gates)


FAMILIES = [
    resnet_with_frozen_batch_norm,
    resnet_of_version_2,
    resnet_with_group_norm,
    wide_resnet,
    vgg,
    convnext_blocks,
    mobilenet_blocks,
    dense_net,
    xception,
    resnext,
    u_net,
    attention_on_images,
]
IN_GRAPH_MODE = (resnet_with_frozen_batch_norm, convnext_blocks, attention_on_images)


def build(family):
    """The family's model with three outputs, trained weights large enough to matter."""
    keras.utils.set_random_seed(1)
    inputs = keras.Input(IMAGE)
    features = L.Flatten()(family(inputs))
    model = keras.Model(inputs, L.Dense(3, name="head")(features))
    generator = np.random.default_rng(0)
    for layer in model._flatten_layers():
        if isinstance(layer, L.BatchNormalization):
            layer.trainable = False
            layer.moving_mean.assign(generator.normal(0.0, 0.3, layer.moving_mean.shape))
    for variable in model.trainable_variables:
        variable.assign_add(generator.normal(0.0, 0.1, variable.shape).astype("float32"))
    return model


def make_batch():
    generator = np.random.default_rng(2)
    return {
        "x": tf.constant(generator.normal(size=(SIZE, *IMAGE)), tf.float32),
        "y": tf.constant(generator.normal(size=(SIZE, 3)), tf.float32),
    }


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_vision_model_equals_oracle_without_the_fallback(family):
    model = build(family)
    classes = {layer.path: capture.__module__ for layer, capture in captured_layers(model)}
    assert not [path for path, module in classes.items() if module.endswith("fallback")]
    assert "fallback" not in tfdp.explain(model)
    batch = make_batch()
    expected = per_example_gradients(model, losses_of(model), batch)
    check_release_spaces(model, batch, expected, 1e-5)
    if family in IN_GRAPH_MODE:
        check(model, batch, "bookkeeping", "graph", 1e-5, expected=expected)
    check_probe(model, batch)
