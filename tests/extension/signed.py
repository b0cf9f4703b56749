"""An algorithm as somebody else would write it: a space, a frozen dataclass, a thin optimizer.

It follows "How to add an algorithm" of docs/design.md and imports public names only.
"""

import dataclasses
import math

import keras
import numpy as np

from tf_lowrank_dp import extend


class SignedSpace(extend.ReleaseSpace):
    """Gradients as they are; the lift gives them a sign.

    Args:
        space: what is released.
        sign: a variable, 1 or -1.
    """

    def __init__(self, space, sign):
        self._space, self._sign = space, sign
        self.shapes = space.shapes

    def refresh(self):
        return self._space.refresh()

    def project(self, gradients, subspace):
        return self._space.project(gradients, subspace)

    def lift(self, released, subspace):
        return [self._sign * tensor for tensor in self._space.lift(released, subspace)]

    def noise_energy(self, variances, normal, subspace=None):
        """A sign changes no energy."""
        return self._space.noise_energy(variances, normal, subspace)


@dataclasses.dataclass(frozen=True)
class Signed(extend.Algorithm):
    """Draws a sign when it is first trained, and keeps it.

    Attributes:
        offset: is added to the normal number whose sign is taken.
    """

    offset: float = 0.0

    name = "signed"

    def __post_init__(self):
        if not math.isfinite(self.offset):
            raise ValueError(f"Expected a finite offset. Received: offset={self.offset}.")

    def release_space(self, context):
        if "sign" not in context.state:
            [drawn] = context.normal([()])
            context.state.keep("sign", np.sign(drawn + self.offset))
        space = extend.IdentitySpace(context.parameters, context.groups)
        return SignedSpace(space, context.state["sign"])


@keras.saving.register_keras_serializable("tests")
class SignedOptimizer(extend.DPOptimizer):
    """`Signed` with any Keras optimizer.

    Args:
        optimizer: the inner optimizer.
        offset: see `Signed`.
        **privacy: the arguments of `DPOptimizer`.
    """

    def __init__(self, optimizer="sgd", *, offset=0.0, **privacy):
        super().__init__(optimizer, Signed(offset), **privacy)
