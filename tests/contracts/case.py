"""What a row of the contract list is."""

import dataclasses
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class LayerCase:
    """One layer with its options.

    Attributes:
        name: of the row.
        make: gives a function from inputs to outputs that calls the layer under test.
        shape: of the inputs, without the example axis.
        kind: of the inputs, "float" or "ids".
        fallback: whether no capture is expected to know the layer.
    """

    name: str
    make: Callable
    shape: tuple
    kind: str = "float"
    fallback: bool = False


def simple(layer_class, *args, **kwargs):
    return lambda: layer_class(*args, **kwargs)


def twice(make):
    """One layer called twice."""

    def build():
        layer = make()
        return lambda x: layer(layer(x))

    return build
