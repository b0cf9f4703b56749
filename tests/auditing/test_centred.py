"""The one-run audit of centred releases: canaries in the gradients and in the means at once.

Canary `i` is a long input along axis `i`: its gradient is in row `i` of the kernel, its mean in
number `i` of the means.  The attacker adds up what both blocks show of it, each over its variance.
"""

import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp
from tests.auditing.canary_run import WIDTH, directions, inner_product_loss, recorded_releases
from tf_lowrank_dp.auditing import Canaries, one_run_audit
from tf_lowrank_dp.mechanism.gaussian import GaussianMechanism
from tf_lowrank_dp.training.state import state_of

DELTA, CONFIDENCE, CANARIES, STEPS, RATE = 1e-6, 0.9999, 600, 8, 0.01
OPTIMIZERS = {
    "DP-SGD": (tfdp.DPSGDOptimizer, {}),
    "RGP": (tfdp.RGPOptimizer, {"rank": 4, "include": ["kernel"]}),
    "LSG": (tfdp.LSGOptimizer, {"rank": 4, "include": ["kernel"], "sparsity": 0.25}),
}


def audit(name, noise_multiplier):
    """The bound of the audit, that of the library, and how well canaries are told apart."""
    make, own = OPTIMIZERS[name]
    x, y = np.float32(100 * np.eye(CANARIES)), directions(CANARIES, seed=0)
    canaries = Canaries.draw(x, y)
    dense = keras.layers.Dense(WIDTH, name="dense")
    model = tfdp.make_private(keras.Sequential([keras.Input((CANARIES,)), dense]))
    inner = keras.optimizers.SGD(RATE)
    privacy = {"l2_norm_clip": 1.0, "noise_multiplier": noise_multiplier, "delta": DELTA}
    optimizer = make(inner, centering=True, **own, **privacy)
    model.compile(optimizer, loss=inner_product_loss, run_eagerly=True, jit_compile=False)
    before = dense.kernel.numpy()
    inserted = canaries.insert(x[:0], y[:0])
    batch_size = -(-len(inserted[0]) // 2)
    with released_means() as means:
        model.fit(*inserted, batch_size=batch_size, epochs=STEPS // 2, verbose=0)
    mechanism = state_of(model).run.engine.mechanism
    variances = np.square(mechanism.deviations) / np.square(mechanism.block_clips)
    update = (dense.kernel.numpy() - before) * batch_size / RATE
    seen = np.sum(update * y, axis=1) / np.linalg.norm(y, axis=1)
    scores = seen / variances[0] + np.sum(means, axis=0) / variances[1]
    found = one_run_audit(scores, canaries.included, delta=DELTA, confidence=CONFIDENCE)
    return found, tfdp.privacy_spent(model, DELTA)


def released_means():
    """Collects the means that each step releases, `(CANARIES,)`."""
    return recorded_releases(lambda blocks: blocks[-1][0].numpy()[:, 0])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_no_audit_of_gradients_and_means_exceeds_the_reported_epsilon(name):
    found, reported = audit(name, noise_multiplier=1.2)
    assert found.epsilon < reported
    assert found.roc.auc > 0.6  # the attack sees something


def test_means_without_noise_of_their_own_are_caught(monkeypatch):
    deviations = GaussianMechanism.deviations.fget
    monkeypatch.setattr(
        GaussianMechanism,
        "deviations",
        property(lambda mechanism: (deviations(mechanism)[0], 1e-3)),
    )
    found, reported = audit("DP-SGD", noise_multiplier=6.3)
    assert reported == pytest.approx(1.0, rel=0.1) and found.epsilon > reported
