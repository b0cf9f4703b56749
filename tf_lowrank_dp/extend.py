"""The extension kit: what layers and algorithms of your own are made of.

A layer needs nothing of this to be trained: it is differentiated one example at a time.  A capture
makes it as fast as those of Keras.  An algorithm is a frozen dataclass that makes a release space.
`docs/design.md` has the two recipes; `tests/extension/` follows them with a complete layer and a
complete algorithm.

To capture a layer: `register_capture`, `register_fallback`, `current_recorder` and the `Recorder`
that it gives, `MatrixView`.

Per-example gradients, not yet computed: `OuterProduct`, `Lookup`, `KernelGradient` (with
`Geometry`), `ColumnBlocks`, `Materialized`, all of them a `PerExampleGradient`, which is a
`PerExampleTensor` with images.  `positions`, `with_examples_of` and `broadcast_gradient` bring
tensors into the shapes that these take.

An algorithm: `Algorithm`, which makes a `ReleaseSpace` (`PerVariableSpace`, `IdentitySpace`,
`MaskedSpace`, `NoiseEnergy`) from a `ReleaseContext` (`Parameter`, `AlgorithmState`), and
`DPOptimizer`, which trains with it.
"""

from tf_lowrank_dp.algorithms import Algorithm, AlgorithmState, ReleaseContext
from tf_lowrank_dp.layers import register_capture, register_fallback
from tf_lowrank_dp.layers.recorder import Recorder, current_recorder
from tf_lowrank_dp.optimizers import DPOptimizer
from tf_lowrank_dp.per_example.activations import broadcast_gradient, positions, with_examples_of
from tf_lowrank_dp.per_example.column_blocks import ColumnBlocks
from tf_lowrank_dp.per_example.convolution import KernelGradient
from tf_lowrank_dp.per_example.gradient import PerExampleGradient, PerExampleTensor
from tf_lowrank_dp.per_example.kernel_offsets import Geometry
from tf_lowrank_dp.per_example.lookup import Lookup
from tf_lowrank_dp.per_example.materialized import Materialized
from tf_lowrank_dp.per_example.outer_product import OuterProduct
from tf_lowrank_dp.per_example.parameter import MatrixView, Parameter
from tf_lowrank_dp.release.identity import IdentitySpace
from tf_lowrank_dp.release.masked import MaskedSpace
from tf_lowrank_dp.release.noise_energy import NoiseEnergy
from tf_lowrank_dp.release.space import PerVariableSpace, ReleaseSpace

__all__ = [
    "Algorithm",
    "AlgorithmState",
    "ColumnBlocks",
    "DPOptimizer",
    "Geometry",
    "IdentitySpace",
    "KernelGradient",
    "Lookup",
    "MaskedSpace",
    "MatrixView",
    "Materialized",
    "NoiseEnergy",
    "OuterProduct",
    "Parameter",
    "PerExampleGradient",
    "PerExampleTensor",
    "PerVariableSpace",
    "Recorder",
    "ReleaseContext",
    "ReleaseSpace",
    "broadcast_gradient",
    "current_recorder",
    "positions",
    "register_capture",
    "register_fallback",
    "with_examples_of",
]
