"""The losses of a forward pass as one traced function, of any number of rows and any weights."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import keras
import tensorflow as tf

from tf_lowrank_dp._keras.layers import seeds_in_reach
from tf_lowrank_dp._keras.scopes import created_variables, is_refused_variable
from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.errors import UnsupportedModelError
from tf_lowrank_dp.gradient_methods.backward import Forward
from tf_lowrank_dp.tracing.random_ops import FixedSource, random_numbers_from


class TracedLosses:
    """The losses of a forward pass, traced once for batches of any size.

    Attributes:
        changed: variables that the forward pass would change, but for seeds.
        created: Keras variables that it creates.
        function: of a batch and of the values of the trainable variables.
    """

    def __init__(
        self, model: keras.Model, forward: Forward, element_spec: Nested, source: FixedSource
    ):
        trained = model.trainable_variables
        seeds = {id(state) for state in seeds_in_reach(model)}

        def losses(batch: Nested, values: Sequence[tf.Tensor]) -> tf.Tensor:
            # add_loss is part of the loss; what the loss creates for itself is initialised below.
            mapping = list(zip(trained, values, strict=True))
            scope = keras.StatelessScope(mapping, collect_losses=True, initialize_variables=False)
            given = dict(scope.state_mapping)
            with scope:
                with (
                    random_numbers_from(source),
                    tf.variable_creator_scope(functools.partial(_refuse_new_variable, model)),
                ):
                    try:
                        found, _ = forward(batch)
                    except ValueError as error:
                        if not is_refused_variable(error):
                            raise
                        raise creates(model, "a keras.Variable") from error
                # Known until the scope ends.
                self.created = created_variables()
            updated = [
                v for v in model.variables if scope.get_current_value(v) is not given.get(id(v))
            ]
            self.changed = [v for v in updated if id(v) not in seeds]
            return found

        rows = tf.nest.map_structure(
            lambda spec: tf.TensorSpec([None, *spec.shape[1:]], spec.dtype), element_spec
        )
        function = tf.function(losses, autograph=False)
        specs = [tf.TensorSpec(v.shape, v.dtype) for v in trained]
        self.function = function.get_concrete_function(rows, specs)
        with keras.StatelessScope():
            pass  # initialises, when it ends, what was created in the graph

    @property
    def graph(self) -> tf.Graph:
        """What was traced."""
        return self.function.graph

    def __call__(self, batch: Nested, values: Sequence[tf.Tensor]) -> tf.Tensor:
        """Losses `(b,)` with these values of the trainable variables."""
        return self.function(batch, list(values))


def _refuse_new_variable(model: keras.Model, next_creator: Callable, **arguments: Any) -> NoReturn:
    raise creates(model, f"'{arguments.get('name')}'")


def creates(model: keras.Model, name: str) -> UnsupportedModelError:
    """The refusal of a forward pass that creates a variable of this name."""
    return UnsupportedModelError(
        f"Expected a forward pass that creates no variables. Received: '{model.name}' creates "
        f"{name} each time it is called, so that it is never trained. "
        "Create layers and weights in __init__ or build, and only use them in call."
    )
