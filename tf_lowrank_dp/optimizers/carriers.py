"""What RGP and LSG share: where the carriers come from, and the weights training began with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from tf_lowrank_dp import _validate
from tf_lowrank_dp.optimizers.matrices import RankOptimizer
from tf_lowrank_dp.per_example.parameter import Parameter
from tf_lowrank_dp.release.low_rank import CARRIERS

CARRIERS_FROM = ("history", "weights", "random")
_INITIAL_KEY = "initial_weights_"


class CarrierOptimizer(RankOptimizer):
    """`RankOptimizer` with carriers `L (m, rank)` and `R (rank, n)` for each matrix.

    Args:
        carriers_from: whose leading subspace the carriers span: "history", the update `W_t - W_0`
            since the start of private training (after `warmup_steps`, before them `W_t`);
            "weights", always `W_t`; "random", random orthonormal carriers (RGP-random).
        warmup_steps: number of steps for which "history" uses `W_t`, because the history is noise
            at first.  With 0 the first carriers are random.
        carriers: "both", or only the gradient of the "left" or "right" one is released.
        **kwargs: see `RankOptimizer`.
    """

    def __init__(
        self,
        optimizer,
        *,
        carriers_from: str,
        warmup_steps: int = 100,
        carriers: str = "both",
        **kwargs,
    ):
        _validate.one_of(CARRIERS_FROM, carriers_from=carriers_from)
        _validate.integer_at_least(0, warmup_steps=warmup_steps)
        _validate.one_of(CARRIERS, carriers=carriers)
        super().__init__(optimizer, **kwargs)
        self.carriers_from, self.warmup_steps = carriers_from, warmup_steps
        self.carriers = carriers
        self.initial_weights: dict[int, tf.Variable] = {}  # by position
        self._paths: dict[int, str] = {}  # of the variables at these positions

    def on_start(self, parameters: Sequence[Parameter]) -> None:
        """Keeps `W_0`, unless it is known (from an earlier run or a saved model)."""
        if self.carriers_from != "history":
            return
        paths = {index: parameters[index].path for index in self.selected(parameters)}
        # Positions change when layers are frozen between two runs.
        moved = {
            path: self.initial_weights.pop(index)
            for index, path in self._paths.items()
            if index in self.initial_weights and paths.get(index) != path
        }
        self._paths = paths
        for index, path in paths.items():
            if path in moved:
                self.initial_weights[index] = moved[path]
            known = self.initial_weights.get(index)
            if known is None or known.shape != parameters[index].shape:
                self._keep(index, np.array(parameters[index].variable))

    def source(self, parameters: Sequence[Parameter]) -> Callable[[int], tf.Tensor] | None:
        """The matrix whose subspace is followed, by position; None for random carriers."""
        if self.carriers_from == "random":
            return None
        if self.carriers_from == "weights":
            return lambda index: parameters[index].matrix()

        def history(index: int) -> tf.Tensor:
            warm = tf.convert_to_tensor(self.iterations) >= self.warmup_steps
            initial = parameters[index].view.to_matrix(self.initial_weights[index])
            return parameters[index].matrix() - tf.where(warm, initial, 0.0)

        return history

    def carrier_arguments(self, parameters: Sequence[Parameter], normal) -> dict:
        """Arguments of `LowRankSpace`."""
        return {
            "ranks": self.ranks(parameters),
            "source": self.source(parameters),
            "normal": normal,
            "power_iterations": self.power_iterations,
            "carriers": self.carriers,
        }

    @property
    def state_variables(self) -> list:
        return [*super().state_variables, *self.initial_weights.values()]

    def restore_point(self):
        restore_others = super().restore_point()
        values = {index: (v, v.numpy()) for index, v in self.initial_weights.items()}
        paths = dict(self._paths)

        def restore():
            restore_others()
            self._paths = paths
            for variable, value in values.values():
                variable.assign(value)
            self.initial_weights = {index: variable for index, (variable, _) in values.items()}

        return restore

    def save_own_variables(self, store):
        super().save_own_variables(store)
        for index, value in self.initial_weights.items():
            store[f"{_INITIAL_KEY}{index}"] = value.numpy()

    def load_own_variables(self, store):
        super().load_own_variables(store)
        for key in store.keys():
            if key.startswith(_INITIAL_KEY):
                self._keep(int(key.removeprefix(_INITIAL_KEY)), np.array(store[key]))

    def get_config(self) -> dict:
        own = {
            "carriers_from": self.carriers_from,
            "warmup_steps": self.warmup_steps,
            "carriers": self.carriers,
        }
        return {**super().get_config(), **own}

    def _keep(self, index: int, value: np.ndarray) -> None:
        known = self.initial_weights.get(index)
        if known is not None and known.shape == value.shape:
            known.assign(value)  # steps that are compiled already read this variable
            return
        with tf.init_scope():
            self.initial_weights[index] = tf.Variable(value, dtype=tf.float32, trainable=False)
