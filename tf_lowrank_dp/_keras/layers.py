"""What is not public of layers: children, seeds, own losses, stored weights, connections."""

from __future__ import annotations

import keras

from tf_lowrank_dp._keras.missing import uses_private_names
from tf_lowrank_dp._types import Nested

_SEED_STATE = "seed_generator_state"


@uses_private_names
def layers_of(layer: keras.layers.Layer, include_self: bool = True) -> list[keras.layers.Layer]:
    """The layer and all layers inside of it, at any depth, each once.

    A layer comes before those that it alone holds.

    Args:
        layer: a layer or model.
        include_self: whether the layer itself is the first of them.
    """
    return layer._flatten_layers(include_self=include_self)


def own_weights(layer: keras.layers.Layer) -> list[keras.Variable]:
    """The weights that a layer holds itself: none of layers inside, such as its activation."""
    inner = layers_of(layer, include_self=False)
    others = {id(variable) for each in inner for variable in each.weights}
    return [variable for variable in layer.weights if id(variable) not in others]


@uses_private_names
def layers_without_variables(model: keras.layers.Layer) -> list[keras.layers.Layer]:
    """The layers of a model whose variables, if any, have yet to be made.

    A subclassed model without a `build` of its own is `built` once that was called, whether its
    layers are or not.
    """
    from keras.src.utils.python_utils import is_default

    inner = layers_of(model, include_self=False)
    unbuilt = [layer for layer in inner if not layer.built and not is_default(layer.build)]
    return unbuilt if model.built else [model, *unbuilt]


@uses_private_names
def own_losses(layer: keras.layers.Layer) -> list:
    """What the layer itself added with `add_loss` or an activity regulariser when last called.

    `layer.losses` adds those of its children and of weight regularisers.  In a
    `keras.StatelessScope(collect_losses=True)` only what was added in it.
    """
    return layer._get_own_losses()


@uses_private_names
def seed_states(model: keras.layers.Layer) -> list[keras.Variable]:
    """The state, uint32 `(2,)`, of each seed generator of a model's layers."""
    layers = layers_of(model)
    return [generator.state for layer in layers for generator in layer._seed_generators]


@uses_private_names
def global_seed_state() -> keras.Variable:
    """The state of the seed generator of `keras.random` where no seed is given."""
    from keras.src.random.seed_generator import global_seed_generator

    return global_seed_generator().state


def seeds_in_reach(layer: keras.layers.Layer) -> list[keras.Variable]:
    """The states of a layer's or model's seed generators, and of that which is used without one."""
    return [*seed_states(layer), global_seed_state()]


def is_seed_state(variable: keras.Variable) -> bool:
    """Whether a variable is the state of a seed generator."""
    return variable.name == _SEED_STATE


@uses_private_names
def kernel_of(layer: keras.layers.Layer) -> keras.Variable:
    """The kernel of a Dense, EinsumDense or convolutional layer that is not quantised.

    With a LoRA adapter `layer.kernel` is the sum of both and no variable.
    """
    return layer._kernel if _has_adapter(layer) else layer.kernel


@uses_private_names
def embeddings_of(layer: keras.layers.Embedding) -> keras.Variable:
    """The table of an embedding that is not quantised, without its LoRA adapter."""
    return layer._embeddings if _has_adapter(layer) else layer.embeddings


def _has_adapter(layer: keras.layers.Layer) -> bool:
    return getattr(layer, "lora_enabled", False)  # not all layers can have one


@uses_private_names
def is_functional(model: keras.Model) -> bool:
    """Whether the model is a graph of layers; of `Sequential` this need not be true."""
    from keras.src.models.functional import Functional

    return isinstance(model, Functional)


@uses_private_names
def symbolic_inputs(model: keras.Model) -> Nested:
    """The symbolic inputs of a model in the structure that it takes, None for one that has none.

    A Sequential model has one once it is built; others than functional ones have none.
    """
    if isinstance(model, keras.Sequential):
        return model.inputs[0] if model.built and model.inputs else None
    return model._inputs_struct if is_functional(model) else None


@uses_private_names
def made_by(tensor: keras.KerasTensor) -> tuple[keras.Operation, int]:
    """The layer or operation whose call gave a symbolic tensor, and the number of this call."""
    operation, call, _ = tensor._keras_history
    return operation, call


@uses_private_names
def symbolic_calls(operation: keras.Operation) -> list[list[keras.KerasTensor]]:
    """The symbolic inputs of each call of a layer or operation; an input layer has none."""
    return [list(node.input_tensors) for node in operation._inbound_nodes]
