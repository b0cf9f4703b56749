"""Every table and figure of the four papers, and what became of it here.

python -m benchmarks.reproductions.gallery --list
python -m benchmarks.reproductions.gallery > docs/reproductions.md
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import NamedTuple

STATES = {
    "reproduced": "the order and rough size of the paper's results appear",
    "level": "measured, all methods tuned alike: the paper's distances do not appear",
    "proven": "a formula or identity that a test checks",
    "partly": "smaller or fewer than in the paper",
    "not run": "within reach of two processor cores, and not run yet",
    "out of reach": "needs data or devices that are not at hand",
    "none": "an explanation or a setting, without a result",
}


class Item(NamedTuple):
    """One table or figure.

    Attributes:
        paper: its short name.
        name: "Table 1", with what it shows.
        theirs: the paper's main numbers.
        state: a key of `STATES`.
        ours: our numbers, the reason, or what it would take.
        where: a link below `docs/`, or the command.
    """

    paper: str
    name: str
    theirs: str
    state: str
    ours: str
    where: str


GEP, RGP, LSG, FAST = "GEP", "RGP", "LSG", "Fast clipping"
_GEP_PAGE = "[GEP](algorithms/gep.md)"
_RESULTS = "[results](results.md)"
_RECORDS = "[benchmarks](../benchmarks/README.md#recorded-results)"
_ACCURACY_PAGE = "[accuracy](accuracy.md#copies-of-images-and-rgp)"
_WITHOUT_NOISE = "[accuracy](accuracy.md#without-noise)"
_CARRIERS = "[accuracy](accuracy.md#what-carriers-of-rank-8-miss)"
_SPEED = "[speed](speed.md#ways-to-clip)"
_LARGE = "WRN-28-4 for 100 to 200 epochs: some ten minutes of an H200 for each run, it is estimated"
_WIDE = (
    "WRN-16-4 on a GPU, epsilon 8, 200 steps, three seeds: DP-SGD 47.3, centred 55.7, RGP 38.0, "
    "LSG 37.4; 1,200 steps, one seed: DP-SGD 60.6, centred 63.0, RGP 46.3; "
)

ITEMS = (
    Item(
        FAST,
        "Figures 1 to 4: layers",
        "",
        "none",
        "formulas of norms, one test for each layer",
        "[layers](layers.md)",
    ),
    Item(
        FAST,
        "Figure 5: time by architecture",
        "54 to 94 times faster than one example at a time, batches of 128",
        "partly",
        "batches of 32: a loop takes 1.4 (encoder) to 6.6 times as long (recurrent network)",
        _SPEED,
    ),
    Item(
        FAST,
        "Figure 6: time by batch size",
        "16 to 128",
        "reproduced",
        "the loop falls behind with the batch: MLP 3 to 15 times, CNN 3 to 5, recurrent 4 to 10",
        _SPEED,
    ),
    Item(
        FAST,
        "Figure 7: time by depth",
        "2 to 8 layers",
        "reproduced",
        "MLP, batches of 128: a loop takes 11 to 18 times as long at each depth",
        _SPEED,
    ),
    Item(
        FAST,
        "Figure 8: ResNet and VGG",
        "faster than one at a time, less so for large images",
        "reproduced",
        "64 x 64, batches of 20: a loop takes 3.5 times as long for ResNet-18, 1.8 for VGG-16",
        _SPEED,
    ),
    Item(
        FAST,
        "Figure 9: time by image size",
        "32 to 256",
        "partly",
        "ResNet-18 at 32, 64, 128: a loop takes 8.2, 4.2, 1.7 times as long; 256 did not end",
        _SPEED,
    ),
    Item(
        GEP,
        "Figure 1: noise and gradient norms",
        "the norm of the noise grows with the model, that of gradients does not",
        "reproduced",
        "CIFAR-10: noise 1.8 times the gradient for 6,000 weights, 16 times for 1.5 million",
        _RESULTS,
    ),
    Item(
        GEP,
        "Figure 2: stable ranks in training",
        "small throughout",
        "partly",
        "MNIST: 4.6 to 6.7; CIFAR-10, CNN of 94,000 weights, 150 steps: 7.0 at first, 1.5 to 4.0 "
        "later",
        _WITHOUT_NOISE,
    ),
    Item(GEP, "Figure 3: overview", "", "none", "the release space of both blocks", _GEP_PAGE),
    Item(
        GEP,
        "Figure 4: projection error",
        "small and falling with the bases",
        "partly",
        "MNIST: 0.55 to 0.62; the CNN on CIFAR-10, 500 bases: 0.12 at first, 0.02 to 0.17 later",
        _WITHOUT_NOISE,
    ),
    Item(
        GEP,
        "Figure 5: stable rank of residuals",
        "some ten times that of gradients",
        "partly",
        "MNIST: four times at first, 1.2 times later; the CNN on CIFAR-10: 1.7 times at first, "
        "4 to 9 times later",
        _WITHOUT_NOISE,
    ),
    Item(
        GEP,
        "Table 1: MNIST",
        "epsilon 2, 5, 8: DP-SGD 94.7, 96.8, 97.2, GEP 96.3, 97.9, 98.4",
        "level",
        "DP-SGD 97.6, 98.3, 98.5; GEP 97.6, 98.4, 98.5: tuned DP-SGD leaves no distance",
        _GEP_PAGE,
    ),
    Item(
        GEP,
        "Table 1: PATE on MNIST",
        "epsilon 2, 5, 8: 98.5, 98.5, 98.6",
        "partly",
        "93.0, 94.1, 94.0 with an epsilon for any votes; behind DP-SGD and GEP",
        _GEP_PAGE,
    ),
    Item(
        GEP,
        "Table 1: SVHN",
        "DP-SGD 91.6, GEP 95.1 at epsilon 8",
        "out of reach",
        "the data are not at hand",
        "",
    ),
    Item(
        GEP,
        "Table 1: CIFAR-10",
        "DP-SGD 56.4, GEP 74.9 at epsilon 8",
        "partly",
        "CNN of 94,000 weights, 150 steps, epsilon 2, 3, 8, three seeds: DP-SGD 33.2, 33.6, 34.0, "
        "GEP 34.2, 35.2, 35.2 (ahead as in the paper, by a tenth of its distance at most); B-GEP "
        "at 3 22.9 (behind; the paper: ahead); next to no noise, one seed: 34.0, 37.7, 26.9: the "
        "residual's own clip decides, not noise; ResNet of 8 layers at 3: 36.1 and 35.6; " + _LARGE,
        _ACCURACY_PAGE,
    ),
    Item(
        GEP,
        "Figure 6: number of bases",
        "GEP varies little, B-GEP much",
        "reproduced",
        "MNIST, 125 to 1,000: GEP 95.3 to 96.1, B-GEP 84.0 to 93.7",
        _RECORDS,
    ),
    Item(GEP, "Table 2: settings", "", "none", "ours are stated with each result", _RECORDS),
    Item(
        GEP,
        "Table 3: linear model on features",
        "GEP ahead by 1.1 to 2.7",
        "level",
        "SST-2 embeddings, 770 parameters: 83.1 and 83.1 to 83.5",
        _RECORDS,
    ),
    Item(
        GEP,
        "Table 4: cost",
        "formulas",
        "proven",
        "memory and time over bases and examples",
        _RECORDS,
    ),
    Item(
        GEP,
        "Table 5: source of public data",
        "73 to 75",
        "level",
        "MNIST: 95.6 to 96.4, true labels no worse",
        _RECORDS,
    ),
    Item(
        GEP,
        "Table 6: number of public data",
        "74.6 to 75.2",
        "reproduced",
        "MNIST, 500 to 2,000: 96.0 to 96.1",
        _RECORDS,
    ),
    Item(
        GEP,
        "Figure 7: random bases",
        "they miss more than 95 %",
        "reproduced",
        "97 to 98 %",
        _RECORDS,
    ),
    Item(
        RGP,
        "Figure 1: reparametrisation",
        "",
        "none",
        "computed from outer products, no new weights",
        "[RGP](algorithms/rgp.md)",
    ),
    Item(RGP, "Table 1: cost", "formulas", "partly", "step time and memory over plain", _RECORDS),
    Item(
        RGP,
        "Figure 2: stable ranks",
        "low throughout",
        "reproduced",
        "the CNN on CIFAR-10, three passes: 1.0 to 1.2 without privacy, 1.0 to 1.4 with RGP",
        _CARRIERS,
    ),
    Item(
        RGP,
        "Figure 3: projection residuals",
        "history as good as the gradient itself",
        "partly",
        "the CNN on CIFAR-10: its own carriers miss 0.00 to 0.12, those of the gradient before "
        "0.01 to 0.15 (plain) and 0.00 to 0.30 (RGP), those of the update so far, which the "
        "algorithm takes, 0.01 to 0.57 and 0.32 to 0.93; MiniLM: carriers of weights keep 5 %, "
        "history no more",
        _CARRIERS,
    ),
    Item(
        RGP,
        "Table 2: SVHN, CIFAR-10 at epsilon 8",
        "DP-SGD 55.9, RGP 63.4",
        "level",
        "CNN of 94,000 weights, 150 steps: 34.0 and 30.9, three seeds; ResNet of 8 layers at "
        "epsilon 3: 36.1 and 31.6 (with biases and centred, DP-SGD 42.8); " + _WIDE + _LARGE,
        _ACCURACY_PAGE,
    ),
    Item(
        RGP,
        "Table 3: the same by epsilon",
        "CIFAR-10: RGP 6 to 8 points ahead",
        "level",
        "the same CNN at epsilon 2, 3, 8: RGP 2.0, 2.0 and 3.1 points behind; at 3, carriers of "
        "the update 31.6, of the weights 31.9, random ones 30.1",
        _ACCURACY_PAGE,
    ),
    Item(
        RGP,
        "Figure 4, Table 4: BERT on four tasks",
        "SST-2: DP-SGD 82.3, RGP 91.5",
        "level",
        "MiniLM on SST-2, 24 steps: 83.3 and 83.5; 200 steps, epsilon 0.5, 1, 3: 83.6, 84.1, 84.0 "
        "and 83.5, 83.6, 84.1; at 1, carriers of the weights 83.8, of the history 83.8, random "
        "ones 83.7; without privacy 89.3 and 86.4; other tasks are not at hand",
        _ACCURACY_PAGE,
    ),
    Item(
        RGP,
        "Table 5: membership inference",
        "50 % with RGP, 56 to 60 % without privacy",
        "reproduced",
        "RGP 49.9, 50.3, 50.2 % at epsilon 1, 3, 8; 54.1 % without",
        "[auditing](auditing.md)",
    ),
    Item(
        RGP,
        "Figure 5: rank",
        "2 to 8: little difference",
        "reproduced",
        "SST-2: 82.8, 83.3, 83.5; 200 steps, epsilon 1: 83.6, 83.6, 83.6",
        _RECORDS,
    ),
    Item(
        RGP,
        "Figure 6: without privacy, by residual weight and rank",
        "without the residual weight almost nothing is learnt",
        "partly",
        "rank 8, no clip, one rate, three seeds: MNIST, two hidden layers, 92.0 with it and 87.6 "
        "without; CIFAR-10, CNN, 150 steps, 28.8 and 19.0",
        "[RGP](algorithms/rgp.md)",
    ),
    Item(
        LSG,
        "Figure 1: weights and gradients",
        "both are large in some rows and columns",
        "partly",
        "MiniLM: a tenth of the entries hold 60 to 98 % of a gradient, but rows and columns of "
        "large weights no more than others",
        _RESULTS,
    ),
    Item(
        LSG,
        "Figures 2, 3: which units are frozen",
        "",
        "none",
        "the masks, and a test of each",
        "[LSG](algorithms/lsg.md)",
    ),
    Item(
        LSG,
        "Table 1: SST-2, QQP by rank and sparsity",
        "DP-SGD 81.0, RGP 88.3, LSG 90.4",
        "level",
        "MiniLM on SST-2: 83.3, 83.5, 83.3; 200 steps, epsilon 1: 84.1, 83.6, 83.7; LSG of rank 8 "
        "and sparsity 0.3, and rank 2 and 0.5: 83.7, 83.5; QQP is not at hand",
        _ACCURACY_PAGE,
    ),
    Item(
        LSG,
        "Figure 4: by epsilon",
        "LSG ahead at each",
        "level",
        "MiniLM on SST-2, 200 steps, three seeds, epsilon 0.5, 1, 3: DP-SGD 83.6, 84.1, 84.0; LSG "
        "83.5, 83.7, 83.8",
        _ACCURACY_PAGE,
    ),
    Item(
        LSG,
        "Table 2: CIFAR-10 by epsilon",
        "DP-SGD 48.4, LSG 58.1 at 3.3",
        "level",
        "the same CNN at epsilon 2, 3, 8: LSG 1.4, 1.6 and 2.3 points behind; ResNet of 8 layers "
        "at 3: 2.6 behind; " + _WIDE + _LARGE,
        _ACCURACY_PAGE,
    ),
    Item(
        LSG,
        "Figure 5: curves by rank and sparsity",
        "sparsity hurts at first",
        "partly",
        "the same CNN at epsilon 3, in the end: sparsity 0.1, 0.3, 0.5 30.5, 32.1, 31.9, begun "
        "half-way 29.2; RGP of rank 2, 4, 8, 16 29.2, 25.9, 31.6, 30.8: no order beyond seeds; "
        + _LARGE,
        _ACCURACY_PAGE,
    ),
)


def page() -> str:
    """The page of the documentation."""
    lines = ["# Reproductions", "", "Every table and figure of the four papers. Written by "]
    lines[-1] += "`python -m benchmarks.reproductions.gallery`."
    lines += ["", "| state | meaning |", "| --- | --- |"]
    lines += [f"| {state} | {meaning} |" for state, meaning in STATES.items()]
    lines += ["", "Fast clipping: Lee and Kifer 2020; GEP: Yu et al., ICLR 2021; RGP: Yu et al., "]
    lines[-1] += "ICML 2021; LSG: Ito et al. 2022. Accuracies are in %."
    lines += ["", "| paper | table or figure | there | state | here | where |"]
    lines += ["| " + "--- | " * 6, *_rows()]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _rows() -> Iterator[str]:
    for item in ITEMS:
        yield "| " + " | ".join(item) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="names and states only")
    if parser.parse_args().list:
        for item in ITEMS:
            print(f"{item.state:13} {item.paper:14} {item.name}")
        return
    print(page(), end="")


if __name__ == "__main__":
    main()
