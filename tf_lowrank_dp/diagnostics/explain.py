"""How each variable's per-example gradient is obtained."""

from __future__ import annotations

import keras

from tf_lowrank_dp.diagnostics.table import text_table
from tf_lowrank_dp.layers.fallback import own_variables
from tf_lowrank_dp.layers.registry import captured_layers


def explain(model: keras.Model) -> str:
    """A table: layer, variable, shape, how its per-example gradient is computed, at what cost.

    Args:
        model: a built Keras model.

    Returns:
        The table as text, one line for each trainable variable, then what is frozen.

    Example:

    >>> import keras, tf_lowrank_dp as tfdp
    >>> print(tfdp.explain(keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="d")])))
    layer  variable  shape   parameters  how               cost
    d      kernel    (4, 2)  8           outer product     as the kernel gradient
    d      bias      (2,)    2           sum of positions  as the bias gradient
    10 parameters are trained, 0 are frozen.
    """
    rows = [("layer", "variable", "shape", "parameters", "how", "cost")]
    for layer, capture in captured_layers(model):
        for variable in own_variables(layer):
            how, cost = _method(layer, capture, variable)
            name = variable.path.rpartition("/")[2]
            size = str(int(keras.ops.size(variable)))
            rows.append((layer.name, name, str(tuple(variable.shape)), size, how, cost))
    lines = text_table(rows)
    trained = sum(int(keras.ops.size(v)) for v in model.trainable_variables)
    frozen = sum(int(keras.ops.size(v)) for v in model.non_trainable_variables)
    lines.append(f"{trained:,} parameters are trained, {frozen:,} are frozen.")
    return "\n".join(lines)


def _method(layer, capture: type, variable) -> tuple[str, str]:
    name = variable.path.rpartition("/")[2]
    if capture.__module__.endswith("layers.fallback"):
        return "fallback", "the layer once more, one example at a time"
    if isinstance(layer, keras.layers.Embedding) and name in ("embeddings", "lora_embeddings_a"):
        if getattr(layer, "tie_weights", False):
            return "rows looked up and outer product", "positions squared times width"
        return "rows looked up", "positions squared times width"
    if name.startswith("lora_"):
        return "outer product", "rank times width, no kernel gradient"
    if "kernel" in name and capture.__module__.endswith("convolution"):
        return "product at each kernel offset", "as the kernel gradient"
    if "kernel" in name or name == "reverse_embeddings":
        return "outer product", "as the kernel gradient"
    return "sum of positions", "as the bias gradient"
