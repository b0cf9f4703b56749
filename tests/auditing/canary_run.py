"""One training run on nothing but canaries, each with a gradient direction of its own.

The model is an embedding and its loss `-y . W[x]`: the gradient of canary `i` is `-y_i` in row `i`
of the table and 0 elsewhere, whatever the weights, and far longer than the clip norm.  The
attacker sees everything that crosses the privacy wall, and the weights.
"""

import contextlib
import dataclasses
from unittest import mock

import keras
import numpy as np

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.auditing import Canaries, one_run_audit, update_scores
from tf_lowrank_dp.mechanism.gaussian import GaussianMechanism

WIDTH, RANK, SPARSITY, PUBLIC = 8, 4, 0.25, 16
LENGTH = 100.0
"""Norm of a canary's gradient; the clip norm is 1."""
NUM_STEPS = 16
"""With half of the examples in each: hardly any is in all of the steps or in none."""
LEARNING_RATE = 0.01
"""So small that the weights, and what LSG takes from them, stay about the same."""

OPTIMIZERS = {
    "DP-SGD": tfdp.DPSGDOptimizer,
    "RGP": tfdp.RGPOptimizer,
    "LSG": tfdp.LSGOptimizer,
    "GEP": tfdp.GEPOptimizer,
}


def certain_guesses(name, num_canaries):
    """How many canaries a leak without noise shows to be in, and out; fixed before any run.

    LSG freezes some rows: those canaries leave no trace, so none can be said to be out.
    """
    if name == "LSG":
        return int(0.45 * (1 - SPARSITY) * num_canaries), 0
    return int(0.4 * num_canaries), int(0.4 * num_canaries)


def inner_product_loss(y_true, y_pred):
    """Minus the inner product of target and output, `(b,)`."""
    return -keras.ops.sum(y_true * y_pred, axis=-1)


def directions(size, seed):
    """Gradients of length `LENGTH` in random directions."""
    targets = np.random.default_rng(seed).normal(size=(size, WIDTH))
    return np.float32(LENGTH * targets / np.linalg.norm(targets, axis=1, keepdims=True))


def optimizer_of(name, num_canaries, **privacy):
    """An optimizer of `OPTIMIZERS`."""
    inner = keras.optimizers.SGD(LEARNING_RATE)
    if name == "GEP":
        public = np.arange(num_canaries, num_canaries + PUBLIC, dtype=np.int32)
        own = {"public_data": public, "public_labels": directions(PUBLIC, seed=1)}
        return tfdp.GEPOptimizer(
            inner, num_bases=PUBLIC, embedding_clip=1.0, residual_clip=1.0, **own, **privacy
        )
    own = {"RGP": {"rank": RANK}, "LSG": {"rank": RANK, "sparsity": SPARSITY}}.get(name, {})
    include = {"include": ["table"]} if own else {}
    return OPTIMIZERS[name](inner, l2_norm_clip=1.0, **own, **include, **privacy)


@dataclasses.dataclass(frozen=True)
class CanaryRun:
    """A finished run: the reported epsilon, the coins, and two scores of each canary.

    Attributes:
        name: of the optimizer.
        epsilon: what the library reports at `delta`.
        delta: as above.
        included: the coins.
        total: how far the weights went down each canary's gradient.
        spread: how much the released numbers of each canary's row vary over the steps. What is
            the same in every step, such as noise that is used again, cancels.
    """

    name: str
    epsilon: float
    delta: float
    included: np.ndarray
    total: np.ndarray
    spread: np.ndarray

    def audit(self, score, guesses=None, confidence=0.95):
        """The one-run audit with `total` or `spread`."""
        return one_run_audit(
            getattr(self, score),
            self.included,
            delta=self.delta,
            guesses=guesses,
            confidence=confidence,
        )


def train(
    name,
    num_canaries,
    *,
    delta,
    num_steps=NUM_STEPS,
    seed=None,
    microbatch_size=None,
    copies=1,
    as_users=False,
    **privacy,
):
    """Trains on the canaries that the coins took, with Poisson sampling at rate one half.

    Each is there in so many equal rows, as single examples or as those of a user.
    """
    rows = num_canaries + PUBLIC
    x = np.arange(num_canaries, dtype=np.int32)
    canaries = Canaries.draw(x, directions(num_canaries, seed=0), seed=seed)
    table = keras.layers.Embedding(rows, WIDTH, name="table")
    model = keras.Sequential([keras.Input((), dtype="int32"), table])
    tfdp.make_private(model, microbatch_size=microbatch_size)
    model.compile(
        optimizer_of(name, num_canaries, delta=delta, **privacy),
        loss=inner_product_loss,
        run_eagerly=True,
        jit_compile=False,
    )
    before = np.array(table.embeddings)
    ids, y = canaries.insert(x[:0], canaries.y[:0])
    x, y = np.repeat(ids, copies), np.repeat(y, copies, axis=0)
    users = {"unit_ids": x, "rows_per_unit": copies} if as_users else {}
    units = len(ids) if as_users else len(x)
    with recorded_releases(lambda blocks: of_rows(blocks, rows)) as released:
        model.fit(x, y, batch_size=-(-units // 2), epochs=num_steps // 2, verbose=0, **users)
    update = np.array(table.embeddings) - before
    spreads = np.linalg.norm(np.std(released, axis=0), axis=1)
    return CanaryRun(
        name=name,
        epsilon=tfdp.privacy_spent(model, delta),
        delta=delta,
        included=canaries.included,
        total=update_scores(model, [update], canaries.x, canaries.y, batch_size=4096),
        spread=spreads[:num_canaries],
    )


def of_rows(blocks, rows):
    """What a step releases of the rows of the table, `(rows, ...)`.

    That is the gradient of DP-SGD, `dL` of RGP and LSG, which is kept transposed, and the residual
    of GEP, which is kept flat.
    """
    largest = max((t.numpy() for block in blocks for t in block), key=np.size)
    return largest.T if largest.shape[-1] == rows else largest.reshape(rows, -1)


@contextlib.contextmanager
def recorded_releases(part):
    """Collects what `part` takes from the noisy blocks of each step."""
    recorded, release = [], GaussianMechanism.release

    def recording(mechanism, *arguments):
        blocks = release(mechanism, *arguments)
        recorded.append(part(blocks))
        return blocks

    with mock.patch.object(GaussianMechanism, "release", recording):
        yield recorded
