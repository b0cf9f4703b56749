"""A layer as somebody else would write it, and the capture that makes it fast in private training.

It follows "How to add a layer" of docs/design.md and imports public names only.
"""

import keras

import tf_lowrank_dp as tfdp
from tf_lowrank_dp import extend


@keras.saving.register_keras_serializable("autoencoders")
class TiedAutoencoder(keras.layers.Layer):
    """Encodes, `h = tanh(x W + a)`, and decodes with the same kernel, `h W^T + c`.

    Args:
        units: size of the code `h`.
    """

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units

    def build(self, input_shape):
        features = input_shape[-1]
        self.kernel = self.add_weight(shape=(features, self.units), name="kernel")
        self.code_bias = self.add_weight(shape=(self.units,), name="code_bias")
        self.bias = self.add_weight(shape=(features,), name="bias")

    def call(self, inputs):
        code = keras.ops.tanh(self.encode(inputs))
        return self.decode(code)

    def encode(self, inputs):
        return keras.ops.matmul(inputs, self.kernel) + self.code_bias

    def decode(self, code):
        return keras.ops.matmul(code, keras.ops.transpose(self.kernel)) + self.bias

    def get_config(self):
        return {**super().get_config(), "units": self.units}


@tfdp.layers.register_capture(TiedAutoencoder)
class CapturedTiedAutoencoder(TiedAutoencoder):
    """Two recorded tensors; the kernel's gradient is the sum of the outer products of both."""

    @classmethod
    def matrix_views(cls, layer):
        return [(layer.kernel, extend.MatrixView.of(tuple(layer.kernel.shape)))]

    def call(self, inputs):
        recorder = extend.current_recorder()
        if recorder is None:
            return super().call(inputs)

        def kernel_as_encoder(d):
            x = extend.with_examples_of(d, inputs)
            return extend.OuterProduct(extend.positions(x), extend.positions(d))

        def kernel_as_decoder(d):
            return extend.OuterProduct(extend.positions(d), extend.positions(code))

        (z,) = recorder.watch(
            self.name,
            [self.encode(inputs)],
            [
                (self.kernel, kernel_as_encoder),
                (self.code_bias, lambda d: extend.broadcast_gradient(d, self.code_bias.shape)),
            ],
        )
        code = keras.ops.tanh(z)
        (y,) = recorder.watch(
            self.name,
            [self.decode(code)],
            [
                (self.kernel, kernel_as_decoder),
                (self.bias, lambda d: extend.broadcast_gradient(d, self.bias.shape)),
            ],
        )
        return y
