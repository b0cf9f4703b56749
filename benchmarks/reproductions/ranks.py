"""`accuracy` over the rank of RGP and the sparsity of LSG: RGP's Table 3, LSG's Figure 5.

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
OTHERS = BY_RANK | BY_SPARSITY

OPTIMIZERS.update(OTHERS)
accuracy.METHODS.update({name: accuracy.Method(name, centering=False) for name in OTHERS})

if __name__ == "__main__":
    accuracy.main()
