"""Which parameters an algorithm treats in its own way, and which are clipped together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tf_lowrank_dp.per_example.parameter import Parameter


def selected_matrices(
    parameters: Sequence[Parameter],
    include: Sequence[str],
    exclude: Sequence[str],
    by_default: Callable[[Parameter], bool] = lambda parameter: True,
) -> list[int]:
    """Positions of the matrices that are reparametrised or made sparse.

    By default these are kernels that are not of an output layer and satisfy `by_default`.

    Args:
        parameters: the trainable variables.
        include: parts of the paths of matrices to take whatever the defaults say.
        exclude: parts of the paths of matrices to leave as they are.
        by_default: further condition on a kernel.

    Raises:
        ValueError: a part matches no matrix, or `include` and `exclude` match the same one.
    """
    for name, parts in (("include", include), ("exclude", exclude)):
        for part in parts:
            if not any(p.view is not None and part in p.path for p in parameters):
                raise ValueError(
                    f"Expected each entry of {name} to be part of the path of a trainable matrix. "
                    f"Received: {part!r}, among the paths "
                    f"{[p.path for p in parameters if p.view is not None]}. Correct it."
                )
    selected = []
    for index, parameter in enumerate(parameters):
        wanted = any(part in parameter.path for part in include)
        unwanted = any(part in parameter.path for part in exclude)
        if parameter.view is None or not (wanted or parameter.role == "kernel"):
            continue
        if wanted and unwanted:
            raise ValueError(
                "Expected include and exclude to match different variables. Received: both match "
                f"'{parameter.path}'. Make one of them more specific."
            )
        if wanted or not (unwanted or parameter.is_output) and by_default(parameter):
            selected.append(index)
    return selected


def groups_of(parameters: Sequence[Parameter], clipping: str) -> list[list[int]]:
    """Positions of the parameters that are clipped jointly.

    Args:
        parameters: the trainable variables.
        clipping: "flat" for one group, "per_layer" for one group a layer.
    """
    if clipping == "flat":
        return [list(range(len(parameters)))]
    layers: dict[str, list[int]] = {}
    for index, parameter in enumerate(parameters):
        layers.setdefault(parameter.path.rpartition("/")[0], []).append(index)
    return list(layers.values())
