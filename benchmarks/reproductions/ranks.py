"""`accuracy` over what RGP and LSG leave open: RGP's Tables 2 and 3, LSG's Figures 4 and 5.

Ranks, sparsities, where the carriers come from, and a sparsity that is switched on half-way.

python -m benchmarks.reproductions.ranks --data-dir DIR --tasks cifar10-short --json accuracy.jsonl

The command line, tuning and record are those of `accuracy`, whose `rgp` has rank 8 and whose `lsg`
rank 8 and a sparsity of 0.5.
"""

from benchmarks.optimizers import OPTIMIZERS, private
from benchmarks.reproductions import accuracy

BY_RANK = {f"rgp rank {rank}": private("RGPOptimizer", rank=rank) for rank in (2, 4, 16)}
BY_SPARSITY = {
    f"lsg sparsity {sparsity}": private("LSGOptimizer", rank=8, sparsity=sparsity)
    for sparsity in (0.1, 0.3)
}
LATER = {"lsg later": private("LSGOptimizer", rank=8, sparsity=0.5, sparsity_start_step=75)}
BY_CARRIERS = {
    f"rgp {source}": private("RGPOptimizer", rank=8, carriers_from=source)
    for source in ("weights", "random")
}
OTHERS = BY_RANK | BY_SPARSITY | LATER | BY_CARRIERS

OPTIMIZERS.update(OTHERS)
accuracy.METHODS.update({name: accuracy.Method(name, centering=False) for name in OTHERS})

if __name__ == "__main__":
    accuracy.main()
