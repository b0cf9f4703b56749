"""`explain` lists every trainable variable once, and what is frozen."""

import re
from html.parser import HTMLParser

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
    assert "rows looked up" in lines[1] and "operations" in lines[2] and "outer product" in lines[3]
    assert lines[-1] == "42 parameters are trained, 20 are frozen: frozen (20)."


def test_a_kernel_of_two_layers_has_one_line_and_lines_follow_the_forward_pass():
    first, second = keras.layers.Dense(4, name="first"), keras.layers.Dense(4, use_bias=False)
    inputs = keras.Input((4,))
    x = keras.layers.Bidirectional(keras.layers.GRU(2), name="both")(first(inputs)[:, None])
    second._kernel, second.bias, second.built = first._kernel, None, True
    model = keras.Model(inputs, second(x))
    rows = [line.split()[:2] for line in tfdp.explain(model).splitlines()[1:-1]]
    assert rows[:2] == [["first", "kernel"], ["first", "bias"]]
    assert [row[0].split("/")[1][:7] for row in rows[2:]] == ["forward"] * 3 + ["backwar"] * 3


def test_random_seeds_are_no_frozen_parameters_and_long_lists_of_frozen_layers_are_cut():
    layers = [keras.layers.Dense(2, name=f"d{n}", trainable=False) for n in range(9)]
    model = keras.Sequential(
        [keras.Input((2,)), *layers, keras.layers.Dropout(0.5), keras.layers.Dense(1)]
    )
    last = tfdp.explain(model).splitlines()[-1]
    assert last.startswith("3 parameters are trained, 54 are frozen: d0 (6), d1 (6), ")
    assert last.endswith("d5 (6) and 3 more layers.")


class Rows(HTMLParser):
    """The cells of each row of an HTML table."""

    def __init__(self):
        super().__init__()
        self.rows = []

    def handle_starttag(self, tag, attributes):
        if tag == "tr":
            self.rows.append([])
        elif tag == "td":
            self.rows[-1].append("")

    def handle_data(self, data):
        if self.rows and self.rows[-1] and self.get_starttag_text().startswith("<td"):
            self.rows[-1][-1] += data


def test_a_notebook_shows_the_same_cells_as_a_terminal():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="a<b")])
    explanation = tfdp.explain(model)
    assert repr(explanation) == str(explanation)
    parser = Rows()
    parser.feed(explanation._repr_html_())
    lines = str(explanation).splitlines()
    cells = [[cell for cell in re.split(r"  +", line)] for line in lines[:-1]]
    assert parser.rows == cells
    assert lines[-1] in explanation._repr_html_()
