"""The coverage check: every trainable variable has a gradient source, or nothing is trained."""

from __future__ import annotations

from collections.abc import Sequence

from tf_lowrank_dp.errors import UnsupportedModelError
from tf_lowrank_dp.layers.recorder import Site


def check_coverage(variables: Sequence, sites: Sequence[Site]) -> None:
    """Raises unless each variable was recorded at one site at least.

    Args:
        variables: the trainable variables of the model.
        sites: what a recorder collected in one forward pass.

    Raises:
        UnsupportedModelError: names the variables without a source.
    """
    recorded = {id(variable) for site in sites for variable, _ in site.builders}
    missing = [variable.path for variable in variables if id(variable) not in recorded]
    if missing:
        raise UnsupportedModelError(
            "Expected every trainable variable to take part in the forward pass through a layer "
            f"that can be captured. Received: no gradient source for {missing}. Freeze these "
            "variables (variable.trainable = False, or that of their layer), remove the unused "
            "layers, or register the surrounding layer's class with "
            "tf_lowrank_dp.layers.register_fallback; where the model calls the layer in a loop, or "
            "uses the variable outside of it (in the loss, or as a kernel that was unfrozen beside "
            "its adapters), use gradient_method='loop' or 'vectorized'."
        )


def check_connected(sites: Sequence[Site], gradients: Sequence[Sequence]) -> None:
    """Raises if a recorded tensor did not reach the loss.

    Args:
        sites: what a recorder collected.
        gradients: for each site one gradient per recorded tensor; None where there is no path.

    Raises:
        UnsupportedModelError: names the layer.
    """
    pairs = list(zip(sites, gradients, strict=True))
    # Some of the calls and operations that use a weight may lead elsewhere, to a stopped gradient.
    reached = {id(v) for site, found in pairs if None not in found for v, _ in site.builders}
    for site, site_gradients in pairs:
        if all(id(v) in reached for v, _ in site.builders):
            continue
        if any(gradient is None for gradient in site_gradients):
            raise UnsupportedModelError(
                f"Expected the output of layer '{site.layer}' to reach the loss. Received: no "
                "gradient for it. Freeze the layer (layer.trainable = False) or use all of its "
                "outputs in the loss; where it is called within keras.ops.vectorized_map, or the "
                "loss is of the output's derivative alone (forces of an energy), set "
                "gradient_method='loop' of the optimizer."
            )
