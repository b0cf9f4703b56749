"""Four ways to the same per-example gradients: the `gradient_method` of an optimizer.

| method | backward passes | holds |
|---|---|---|
| bookkeeping | one | captured inputs and output gradients of every layer |
| reweight | two (Lee & Kifer 2020, ReweightGP) | output gradients of one layer at a time |
| vectorized | one, `tf.vectorized_map` over examples (multiLoss) | all per-example gradients |
| loop | one an example (nxBP) | all per-example gradients |

All take the same `forward` function and return the same `Backward`.  "auto" is bookkeeping.
"""

from __future__ import annotations

from collections.abc import Callable

from tf_lowrank_dp.gradient_methods.backward import Backward
from tf_lowrank_dp.gradient_methods.one_by_one import loop, vectorized
from tf_lowrank_dp.gradient_methods.recorded import bookkeeping, reweight

# Those that record layers, whose outputs must have the example axis first.
RECORDED = ("auto", "bookkeeping", "reweight")
METHODS: dict[str, Callable[..., Backward]] = {
    "auto": bookkeeping,
    "bookkeeping": bookkeeping,
    "reweight": reweight,
    "vectorized": vectorized,
    "loop": loop,
}
