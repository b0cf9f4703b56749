"""`sst2` over where RGP's carriers come from: RGP's Table 5 by its other choices of carriers.

python -m benchmarks.reproductions.sst2_carriers --data-dir DIR --epsilon 1 --steps 200 \
    --batch-size 512 --trained-layers 1 --methods rgp-8-weights rgp-8-random --json sst2.json

The command line, tuning and record are those of `sst2`, whose `rgp-8` follows the weights for 100
steps and their history after that, and whose `rgp-8-history` follows the weights for 4 steps.
"""

from benchmarks.reproductions import sst2

OTHERS = {
    f"rgp-8-{source}": sst2.Method("RGPOptimizer", {"rank": 8, "carriers_from": source}, True)
    for source in ("weights", "random")
}

sst2.METHODS.update(OTHERS)

if __name__ == "__main__":
    sst2.main()
