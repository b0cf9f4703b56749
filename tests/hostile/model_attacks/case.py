"""What a model of the attack suite is: how to build it, its data, and what it is said to be."""

import dataclasses
import functools
from collections.abc import Callable

import keras
import numpy as np


@dataclasses.dataclass(frozen=True)
class ModelCase:
    """A small model that must be refused (hostile) or trained (honest).

    Attributes:
        name: unique in the suite.
        build: a new model with all weights, not compiled and not private.
        data: from a generator and a number of rows to `(x, y)`, arrays with the rows first.
        loss: as for `compile`; a subclass of `keras.losses.Loss` is made anew for each model.
        why: one sentence that tells why it is what it is said to be.
        kind: "hostile" or "honest".
        sensitive_to: of a hostile one, what an example's loss or gradient depends on beside the
            example: one of the laws in `oracle.py`.
        demonstrate: puts a model into the state where that is seen, such as an open gate.
        random: whether it draws random numbers while it trains.
        compile_arguments: further arguments of `compile`.
        initialisations: number of random initialisations under which the verdict is asked for.
    """

    name: str
    build: Callable[[], keras.Model]
    data: Callable[[np.random.Generator, int], tuple]
    loss: str | Callable | keras.losses.Loss | type
    why: str
    kind: str
    sensitive_to: str = ""
    demonstrate: Callable[[keras.Model], None] = lambda model: None
    random: bool = False
    compile_arguments: dict = dataclasses.field(default_factory=dict)
    initialisations: int = 3

    def make_loss(self):
        """The loss, a new one where it may keep state."""
        return self.loss() if isinstance(self.loss, type) else self.loss


hostile = functools.partial(ModelCase, kind="hostile")
honest = functools.partial(ModelCase, kind="honest", initialisations=1)
