"""The lists of `docs/layers.md` are those of the code."""

import inspect
import re
from pathlib import Path

import keras
import pytest

from tf_lowrank_dp.layers.registry import registered_capture
from tf_lowrank_dp.layers.whole_layers import is_whole

keras_hub = pytest.importorskip("keras_hub")

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "layers.md").read_text(encoding="utf-8")


def documented(section):
    """Names in the first column of a section's table."""
    text = TEXT.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`.*?`) \|", text, flags=re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([\w.]+)`", cell)}


def with_weights(layers):
    """Layer classes of a module that add weights of their own, by their class name."""
    classes = {c for _, c in inspect.getmembers(layers, inspect.isclass)}
    return {
        c.__name__: c
        for c in classes
        if issubclass(c, keras.layers.Layer)
        and not issubclass(c, keras.Model)
        and any(
            "self.add_weight(" in inspect.getsource(base)
            for base in c.__mro__
            if issubclass(base, keras.layers.Layer) and base is not keras.layers.Layer
        )
    }


def test_every_keras_layer_with_weights_is_in_one_of_the_lists():
    captured, fallback, special = map(documented, ("Captured", "The fallback", "Frozen or refused"))
    found = with_weights(keras.layers)
    assert {name for name, c in found.items() if registered_capture(c)} <= captured
    others = {name for name, c in found.items() if registered_capture(c) is None}
    others.add("TimeDistributed")  # its weights are those of the layer inside
    print("Layers that use the fallback:", *sorted(others - special))
    assert others - special == {name for name in fallback if "." not in name}
    assert all(registered_capture(getattr(keras.layers, name)) for name in captured)


def test_every_public_layer_of_keras_hub_with_weights_is_captured_or_listed():
    found = with_weights(keras_hub.layers)
    others = {name for name, c in found.items() if registered_capture(c) is None}
    listed = {name.rpartition(".")[2] for name in documented("The fallback") if "." in name}
    assert others == listed


@pytest.mark.parametrize("name", ["ConvLSTM2D", "TimeDistributed"])
def test_layers_that_run_one_example_after_the_other(name):
    arguments = {"ConvLSTM2D": (2, 3), "TimeDistributed": (keras.layers.Dense(2),)}[name]
    assert is_whole(getattr(keras.layers, name)(*arguments))
