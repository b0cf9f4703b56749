"""`explain` lists every trainable variable once, and what is frozen."""

import keras

import tf_lowrank_dp as tfdp


class Scale(keras.layers.Layer):
    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), name="scale")

    def call(self, x):
        return x * self.scale


def test_every_trainable_variable_has_one_line_and_frozen_ones_are_counted():
    frozen = keras.layers.Dense(4, name="frozen")
    frozen.trainable = False
    model = keras.Sequential(
        [
            keras.Input((6,), dtype="int32"),
            keras.layers.Embedding(7, 4, name="table"),
            frozen,
            Scale(name="own"),
            keras.layers.Dense(2, name="head"),
        ]
    )
    lines = tfdp.explain(model).splitlines()
    rows = [line.split()[:2] for line in lines[1:-1]]
    assert rows == [["table", "embeddings"], ["own", "scale"], ["head", "kernel"], ["head", "bias"]]
    assert "rows looked up" in lines[1] and "fallback" in lines[2] and "outer product" in lines[3]
    assert lines[-1] == "42 parameters are trained, 20 are frozen."
