"""`accuracy` on CIFAR-10 with a small ResNet: Table 2 of the papers on RGP and LSG.

python -m benchmarks.reproductions.resnet --data-dir DIR --activations relu --epsilon 3 \
    --tasks cifar10-resnet8 --methods dpsgd rgp lsg sparse powersgd --json accuracy.jsonl

The command line, tuning and record are those of `accuracy`; draws, clip, steps and grid of rates
are those of `cifar10-short`.  What centring takes away is what a layer's bias can learn: in the
task `cifar10-resnet8-biases` the convolutions have one.
"""

import functools

import keras
from keras import layers as kl

from benchmarks.reproductions import accuracy


def _normalized(
    x: keras.KerasTensor, width: int, kernel: int, stride: int, use_bias: bool
) -> keras.KerasTensor:
    initial = {"use_bias": use_bias, "kernel_initializer": "he_normal"}
    x = kl.Conv2D(width, kernel, stride, padding="same", **initial)(x)
    return kl.GroupNormalization(8)(x)


def resnet(activation: str, blocks: int = 1, use_bias: bool = False) -> keras.Model:
    """ResNet for CIFAR (He et al. 2016) of 6 `blocks` + 2 layers, GroupNorm; 78,000 weights."""
    normalized = functools.partial(_normalized, use_bias=use_bias)
    image = keras.Input((32, 32, 3))
    hidden = kl.Activation(activation)(normalized(image, 16, 3, 1))
    for width in (16, 32, 64):
        for block in range(blocks):
            stride = 2 if width > 16 and block == 0 else 1
            inner = kl.Activation(activation)(normalized(hidden, width, 3, stride))
            shortcut = normalized(hidden, width, 1, stride) if stride > 1 else hidden
            hidden = kl.Add()([shortcut, normalized(inner, width, 3, 1)])
            hidden = kl.Activation(activation)(hidden)
    pooled = kl.GlobalAveragePooling2D()(hidden)
    return keras.Model(image, kl.Dense(10, kernel_initializer="zeros")(pooled))


_LIKE = accuracy.TASKS["cifar10-short"]
TASKS = {
    "cifar10-resnet8": _LIKE._replace(network=resnet),
    "cifar10-resnet8-biases": _LIKE._replace(network=functools.partial(resnet, use_bias=True)),
}

if __name__ == "__main__":
    accuracy.TASKS.update(TASKS)
    accuracy.main()
