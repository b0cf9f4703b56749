"""The contract list of optimizers: one row for each algorithm and option."""

import dataclasses

import tf_lowrank_dp as tfdp


@dataclasses.dataclass(frozen=True)
class OptimizerCase:
    """Arguments of an optimizer, and those with which it leaves every gradient as it is."""

    name: str
    make: type
    arguments: dict = dataclasses.field(default_factory=dict)
    exact: dict | None = None

    def optimizer(self, inner="sgd", **arguments):
        return self.make(inner, **{**self.arguments, **arguments})

    def exact_optimizer(self, inner, **arguments):
        """Without clip and noise the plain Keras optimizer."""
        privacy = {"l2_norm_clip": float("inf"), "noise_multiplier": 0.0}
        return self.make(inner, **{**self.arguments, **(self.exact or {}), **privacy, **arguments})


RANK = {"rank": 1}
FULL = {"rank": 100, "include": ["kernel"]}
RGP, LSG, SPARSE = tfdp.RGPOptimizer, tfdp.LSGOptimizer, tfdp.SparseDPSGDOptimizer

OPTIMIZER_CASES = [
    OptimizerCase("dpsgd", tfdp.DPSGDOptimizer),
    OptimizerCase("rgp_history", RGP, {**RANK, "warmup_steps": 2}, FULL),
    OptimizerCase("rgp_weights", RGP, {**RANK, "carriers_from": "weights"}, FULL),
    OptimizerCase("rgp_random", RGP, {**RANK, "carriers_from": "random"}, FULL),
    OptimizerCase("rgp_left", RGP, {**RANK, "carriers": "left"}, {**FULL, "carriers": "both"}),
    OptimizerCase("lsg", LSG, RANK, {**FULL, "sparsity": 0.0}),
    OptimizerCase(
        "lsg_right",
        LSG,
        {**RANK, "carriers": "right"},
        {**FULL, "sparsity": 0.0, "carriers": "both"},
    ),
    OptimizerCase(
        "lsg_random_masks", LSG, {**RANK, "masks_from": "random"}, {**FULL, "sparsity": 0.0}
    ),
    OptimizerCase(
        "lsg_history",
        LSG,
        {**RANK, "carriers_from": "history", "warmup_steps": 2},
        {**FULL, "sparsity": 0.0},
    ),
    OptimizerCase(
        "lsg_start_step",
        LSG,
        {**RANK, "sparsity_start_step": 2},
        {**FULL, "sparsity_start_step": 1000},
    ),
    OptimizerCase("sparse_weight", SPARSE, {"unit": "weight"}, {"sparsity": 0.0}),
    OptimizerCase("sparse_neuron", SPARSE, {"unit": "neuron"}, {"sparsity": 0.0}),
    OptimizerCase("power_sgd", tfdp.DPPowerSGDOptimizer, RANK, FULL),
]
