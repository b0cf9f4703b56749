"""Training by one of several workers, or by one process with the same draws: pickles the weights.

`python -m tests.workers.cases FOLDER 2:dpsgd 3:dpsgd ...` runs each case by as many workers, and by
one process on what so many workers draw.
"""

import contextlib
import pickle
import sys
from pathlib import Path

import keras
import numpy as np

import tf_lowrank_dp as tfdp
from tests.workers.processes import fork_workers
from tf_lowrank_dp.sampling import PoissonSampler
from tf_lowrank_dp.sampling.parts import part
from tf_lowrank_dp.training import start_run

STEPS = 20
BOTH = {"include": ["hidden", "out"]}  # kernels (8, 6) and (6, 3)
BUDGET = {"epsilon": 4.0, "noise_multiplier": None}
CLIP = {"l2_norm_clip": 0.5, "delta": 1e-3, "seed": 3}


def rows(count=96):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, 8)).astype("float32")
    return x, rng.integers(0, 3, count)


def gep(noise_multiplier, **settings):
    public = np.random.default_rng(1).normal(size=(12, 8)).astype("float32")
    common = {"delta": 1e-3, "seed": 3, "noise_multiplier": noise_multiplier, **settings}
    return tfdp.GEPOptimizer(
        keras.optimizers.SGD(0.5),
        public_data=public,
        num_classes=3,
        num_bases=6,
        embedding_clip=1.0,
        residual_clip=0.5,
        **common,
    )


def of(optimizer, **settings):
    def make():
        inner = keras.optimizers.Adam(0.01)
        return optimizer(inner, **{"noise_multiplier": 0.7, **CLIP, **settings})

    return make


OPTIMIZERS = {
    "dpsgd": of(tfdp.DPSGDOptimizer),
    "rgp": of(tfdp.RGPOptimizer, rank=2, warmup_steps=4, **BOTH),
    "lsg": of(tfdp.LSGOptimizer, rank=2, masks_from="random", **BOTH),
    "sparse": of(tfdp.SparseDPSGDOptimizer, sparsity=0.5, **BOTH),
    "powersgd": of(tfdp.DPPowerSGDOptimizer, rank=2, **BUDGET, **BOTH),
    "gep": lambda: gep(0.0, refresh_every=3),
    "gep with noise": lambda: gep(0.7),
    "centred": of(tfdp.DPSGDOptimizer, centering=True),
}
SETTINGS = {  # each of them with one algorithm: a case takes seconds
    "dpsgd": {"microbatch_size": 5, "steps_per_execution": 4},
    "rgp": {"jit_compile": True},
    "sparse": {"batch_size": 1},  # most shares are empty
    "gep with noise": {"steps": 1},
    "sharded": {"sharded": True},
}


def model_of(workers, seed=0, **settings):
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(6, activation="tanh", name="hidden"),
            keras.layers.Dense(3, name="out"),
        ]
    )
    return tfdp.make_private(model, workers=workers, **settings)


def compiled(workers, optimizer, microbatch_size=None, seed=0, **settings):
    model = model_of(workers, seed, microbatch_size=microbatch_size)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss=loss, **{"jit_compile": False, **settings})
    return model


def trained(workers, name, batch_size=12, steps=STEPS, sharded=False, **settings):
    """Weights, epsilon and steps of a case."""
    # Each worker has weights of its own before: those of the chief count.
    optimizer = OPTIMIZERS.get(name, OPTIMIZERS["dpsgd"])()
    model = compiled(workers, optimizer, seed=workers.index, **settings)
    if sharded:
        x, y = rows()
        own = slice(None) if workers.alone else slice(workers.index, None, workers.count)
        arguments = {"batch_size": batch_size, "steps_per_epoch": steps, "sharded": True}
        model.fit(x[own], y[own], verbose=0, **arguments)
    else:
        sampler = PoissonSampler(*rows(), batch_size=batch_size, steps=steps, seed=5)
        model.fit(sampler, verbose=0)
    epsilon = tfdp.privacy_spent(model)
    ledger = model.optimizer.ledger
    return [v.numpy() for v in model.trainable_variables], epsilon, ledger.num_steps


@contextlib.contextmanager
def drawing_as(count):
    """One process draws what so many workers draw together."""
    own = PoissonSampler._draws

    def draws(sampler):
        for drawn in zip(*(own(part(sampler, i, count)) for i in range(count)), strict=True):
            yield np.sort(np.concatenate(drawn))

    PoissonSampler._draws = draws
    try:
        yield
    finally:
        PoissonSampler._draws = own


def other_public_numbers(workers):
    """Worker 1 chooses other subspaces than the chief, which must not matter."""
    if workers.index == 1:
        own = start_run._public_randomness
        start_run._public_randomness = lambda seed: own(seed + 1)


def run(folder, names):
    """As one of the workers that TF_CONFIG names, or as one process for all."""
    workers = tfdp.join_workers()
    found = {}
    for case in names:
        count, name = case.split(":")
        settings = SETTINGS.get(name, {})
        if workers.alone:
            with drawing_as(int(count)):
                found[case] = trained(workers, name, **settings)
        elif workers.count == int(count):
            if name == "lsg":  # from here on
                other_public_numbers(workers)
            found[case] = trained(workers, name, **settings)
    path = Path(folder) / f"{workers.count}.{workers.index}.pickle"
    path.write_bytes(pickle.dumps(found))


def main(folder, *names):
    for count in sorted({int(case[0]) for case in names}):
        fork_workers(count, lambda: run(folder, names))
    run(folder, names)


if __name__ == "__main__":
    main(*sys.argv[1:])
