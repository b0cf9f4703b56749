"""Release spaces that leave nothing out, and what a batch of one model becomes in each of them."""

import numpy as np
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tests import oracle
from tests.contracts.checks import losses_of
from tf_lowrank_dp.gradient_methods.methods import METHODS
from tf_lowrank_dp.layers.parameters import describe_parameters
from tf_lowrank_dp.mechanism.clipping import clip_factors
from tf_lowrank_dp.mechanism.noise import NoiseGenerator
from tf_lowrank_dp.release.anchor import AnchorSpace
from tf_lowrank_dp.release.identity import IdentitySpace
from tf_lowrank_dp.release.masked import MaskedSpace
from tf_lowrank_dp.release.weight_masks import weight_masks

EXACT = {"rank": 10_000, "l2_norm_clip": float("inf"), "noise_multiplier": 0.0}


def _low_rank(make, **arguments):
    def space(parameters, gradients):
        del gradients
        matrices = [p.path for p in parameters if p.view is not None]
        optimizer = make(include=matrices, **EXACT, **arguments)
        optimizer.build([p.variable for p in parameters])
        context = optimizer.release_context(parameters, NoiseGenerator(1).normal)
        return optimizer.release_space(context)

    return space


class _OfGivenGradients(AnchorSpace):
    """Its gradients are there when it is asked for a basis, and not when it is made."""

    def refresh(self):
        return self.new_bases()


def _gep(parameters, gradients):
    """The subspace of the first two examples; what is outside of it is in the residual."""
    space = _OfGivenGradients(
        parameters,
        [[index] for index in range(len(parameters))],
        num_bases=[2] * len(parameters),
        anchors=None,
        normal=NoiseGenerator(1).normal,
    )
    space._anchors = lambda: [
        tuple(t[:2] for t in gradient.factors() or (gradient.materialize(),))
        for gradient in gradients
    ]
    return space


def _sparse(parameters, gradients):
    del gradients
    matrices = [index for index, p in enumerate(parameters) if p.view is not None]
    groups = [range(len(parameters))]
    masks = weight_masks(parameters, matrices, 0.0, "neuron")
    return MaskedSpace(IdentitySpace(parameters, groups), masks)


def _identity(parameters, gradients):
    del gradients
    return IdentitySpace(parameters, [range(len(parameters))])


SPACES = {
    "dpsgd": _identity,
    "rgp": _low_rank(tfdp.RGPOptimizer, carriers_from="weights"),
    "lsg": _low_rank(tfdp.LSGOptimizer, sparsity=0.0),
    "gep": _gep,
    "sparse": _sparse,
}


def check_release_spaces(model, batch, expected, tolerance, mode="eager"):
    """Without clip the lift is the weighted sum; with one the first record's part is not above it.

    The norms of what DP-SGD releases are those of the gradients.

    Args:
        model: of a row.
        batch: of three examples or more, of which the second is taken as absent.
        expected: the oracle's gradients.
        tolerance: relative to the largest entry.
        mode: "eager" or "graph".
    """
    losses = losses_of(model)
    parameters = describe_parameters(model)
    weights = np.linspace(0.5, 1.5, len(expected[0]), dtype=np.float32)
    weights[1] = 0.0
    presence = tf.cast(weights != 0.0, tf.float32)
    clip = 0.3 * float(np.min(oracle.norms(expected)))
    gradients = []
    spaces = {name: make(parameters, gradients) for name, make in SPACES.items()}

    def step(batch):
        gradients[:] = METHODS["bookkeeping"](model, lambda b: (losses(b), ()), batch).gradients
        lifted, norms = {}, {}
        for name, space in spaces.items():
            subspace = space.refresh()
            blocks = space.project(gradients, subspace)
            sums = [[p.weighted_sum(tf.constant(weights)) for p in block] for block in blocks]
            lifted[name] = space.lift(sums, subspace)
            norms[name] = [_norms(block, clip_factors(block, presence, clip)) for block in blocks]
        return lifted, norms

    if mode == "graph":
        step = tf.function(step, autograph=False)
    lifted, norms = step(batch)
    sums = [np.tensordot(weights, gradient, axes=1) for gradient in expected]
    scale = max(np.max(np.abs(total)) for total in sums)
    for name in SPACES:
        for tensor, reference in zip(lifted[name], sums, strict=True):
            assert oracle.relative_error(tensor, reference, scale) <= tolerance, name
        for _, released, factors in norms[name]:
            assert released <= clip * (1 + 1e-5) and factors[1] == 0.0, name
    [(of_examples, *_)] = norms["dpsgd"]
    assert oracle.relative_error(of_examples, oracle.norms(expected)) <= tolerance


def _norms(block, factors):
    """Norms of the examples, and of what the first adds to the block's sums after clipping."""
    first = factors * tf.one_hot(0, tf.size(factors))
    released = tf.linalg.global_norm([piece.weighted_sum(first) for piece in block])
    return tf.sqrt(tf.add_n([piece.squared_norms() for piece in block])), released, factors
