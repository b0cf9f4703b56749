"""A Keras optimizer around an algorithm: privacy arguments, the inner optimizer, the ledger."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, NoReturn, Self

import keras
import numpy as np
import tensorflow as tf

from tf_lowrank_dp._types import LearningRate
from tf_lowrank_dp.accounting import PrivacyLedger
from tf_lowrank_dp.algorithms.algorithm import Algorithm, settings_of
from tf_lowrank_dp.algorithms.context import PublicGradients, ReleaseContext
from tf_lowrank_dp.algorithms.state import AlgorithmState
from tf_lowrank_dp.errors import NotPrivateError
from tf_lowrank_dp.optimizers import checks, ledger_in_file
from tf_lowrank_dp.optimizers.clips import ClipNorm
from tf_lowrank_dp.optimizers.finalized import finalize
from tf_lowrank_dp.optimizers.releases import ReleaseBlocks, composed_space, mechanism_name
from tf_lowrank_dp.optimizers.settings import SETTINGS, checked
from tf_lowrank_dp.per_example.parameter import Parameter
from tf_lowrank_dp.release.public_data import PublicData
from tf_lowrank_dp.release.scaled import scaled_anchors, scales_of
from tf_lowrank_dp.release.space import Normal, ReleaseSpace
from tf_lowrank_dp.spending import SPENDING

_SIGMA_KEY = "calibrated_noise_multiplier"


class DPOptimizer(keras.optimizers.Optimizer):
    """An algorithm, and an inner Keras optimizer that only sees private gradients.

    What a step releases is the algorithm's affair.  Its settings are read as attributes of the
    optimizer: `optimizer.rank`.  To be saved and loaded with a model an algorithm gets a subclass,
    registered as Keras serializable, whose arguments are the settings by their names.

    Args:
        optimizer: the inner optimizer: a Keras optimizer, its name or its config.  What it does to
            the private gradient costs nothing.
        algorithm: what is released.
        l2_norm_clip: largest L2 norm of one example's contribution, `AutomaticClip()` or
            `QuantileClip()`; `inf` (no clipping) only with `noise_multiplier=0`.
        epsilon: target epsilon, with `delta`; noise is calibrated to it when training starts.
        delta: target delta, below 1 / number of examples; optional with `noise_multiplier`.
        noise_multiplier: standard deviation of the noise over `l2_norm_clip`, the effective value
            of the whole release; 0 means no noise, no privacy, epsilon infinite.
        planned_steps: number of steps that the budget shall last, when training spans several
            calls of `fit`; None for those of the `fit` that starts.
        clipping: "flat" clips the joint norm, "per_layer" each at `l2_norm_clip / sqrt(layers)`.
        centering: whether kernels' gradients are those for centred inputs (`docs/centering.md`).
        gradient_scale: factors by which gradients are multiplied before they are clipped; the
            private gradient is divided by them.  Keys are parts of variable paths: with
            `{"classifier": 0.1}` this layer counts less in the norm and gets ten times the noise.
            Between 1e-6 and 1e6.
        gradient_method: "auto" takes all examples at once where it is proven that no operation
            joins them, and one at a time where not; or "bookkeeping", "reweight", "vectorized",
            "loop" (`docs/gradient_methods.md`).
        accountant: "pld" (tight) or "rdp".
        seed: makes sampling and noise reproducible, for tests; such a run is not private.
        name: name of the optimizer.

    Raises:
        ValueError: contradictory privacy arguments, or an inner optimizer that would spoil them.

    Example:

    >>> from tf_lowrank_dp.algorithms import RGP
    >>> DPOptimizer("adam", RGP(rank=4), l2_norm_clip=1.0, noise_multiplier=1.1).rank
    4
    """

    l2_norm_clip: ClipNorm
    epsilon: float | None
    delta: float | None
    noise_multiplier: float | None
    clipping: str
    centering: bool
    gradient_scale: dict[str, float]
    gradient_method: str

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        of_init = inspect.signature(cls.__init__)  # not that of __new__, in help and in editors
        cls.__signature__ = of_init.replace(parameters=[*of_init.parameters.values()][1:])

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        checks.refuse_foreign_arguments(kwargs)
        return super().__new__(cls)

    def __init__(
        self,
        optimizer: keras.optimizers.Optimizer | str | dict,
        algorithm: Algorithm,
        *,
        l2_norm_clip: ClipNorm,
        epsilon: float | None = None,
        delta: float | None = None,
        noise_multiplier: float | None = None,
        planned_steps: int | None = None,
        clipping: str = "flat",
        centering: bool = False,
        gradient_scale: Mapping[str, float] | None = None,
        gradient_method: str = "auto",
        accountant: str = "pld",
        seed: int | None = None,
        name: str | None = None,
    ):
        settings = checked(
            l2_norm_clip=l2_norm_clip,
            epsilon=epsilon,
            delta=delta,
            noise_multiplier=noise_multiplier,
            planned_steps=planned_steps,
            clipping=clipping,
            centering=centering,
            gradient_scale=gradient_scale,
            gradient_method=gradient_method,
            accountant=accountant,
        )
        inner = keras.optimizers.get(optimizer)
        if isinstance(inner, DPOptimizer):
            raise ValueError(checks.ALREADY_PRIVATE.format(type(inner).__name__))
        checks.check_inner(inner, settings["centering"], gradient_method)
        super().__init__(learning_rate=0.0, name=name)
        self.inner_optimizer = inner
        self.algorithm = algorithm
        self.algorithm_state = AlgorithmState()
        self.__dict__.update(settings)
        self.seed = None if seed is None else int(seed)

    def check_settings(self) -> None:
        """Checks arguments that were set as attributes since, before a training run begins.

        Raises:
            ValueError: as the constructor does.
        """
        self.__dict__.update(checked(**{name: getattr(self, name) for name in SETTINGS}))
        checks.check_inner(self.inner_optimizer, self.centering, self.gradient_method)

    def release_context(
        self,
        parameters: Sequence[Parameter],
        normal: Normal,
        public_gradients: PublicGradients | None = None,
        state: AlgorithmState | None = None,
    ) -> ReleaseContext:
        """What the algorithm is given when a training run starts.

        Args:
            parameters: the trainable variables.
            normal: public random numbers.
            public_gradients: differentiates public examples; scaled as private gradients are.
            state: instead of the optimizer's own, for those who only look.
        """
        if public_gradients is not None and self.gradient_scale:
            scales = scales_of(parameters, self.gradient_scale)
            public_gradients = scaled_anchors(public_gradients, scales)
        return ReleaseContext(
            parameters,
            normal,
            step=lambda: tf.convert_to_tensor(self.iterations),
            state=self.algorithm_state if state is None else state,
            clipping=self.clipping,
            public_gradients=public_gradients,
        )

    def release_space(self, context: ReleaseContext) -> ReleaseSpace:
        """What a training run that starts now releases."""
        return composed_space(
            self.algorithm, context, self.l2_norm_clip, self.gradient_scale, self.centering
        )

    @property
    def mechanism_name(self) -> str:
        """What ledgers and statements call the releases."""
        return mechanism_name(self.algorithm, self.l2_norm_clip, self.centering)

    def release_blocks(self, num_blocks: int) -> ReleaseBlocks:
        """How its blocks are clipped, and how they share the noise."""
        return ReleaseBlocks.of(self.algorithm, self.l2_norm_clip, num_blocks, self.centering)

    @property
    def public_data(self) -> PublicData | None:
        """Public examples of an algorithm that uses some; other ones need another training run."""
        return self.algorithm.public_data

    @property
    def calibrated_noise_multiplier(self) -> float | None:
        """The noise multiplier found for `epsilon` and `delta`; None until training has started."""
        state = self.algorithm_state
        return float(state[_SIGMA_KEY].numpy()) if _SIGMA_KEY in state else None

    @calibrated_noise_multiplier.setter
    def calibrated_noise_multiplier(self, noise_multiplier: float) -> None:
        self.algorithm_state.keep(_SIGMA_KEY, np.float64(noise_multiplier))

    def __getattr__(self, name: str) -> Any:
        """A setting of the algorithm; Python asks here for what is no attribute."""
        settings = settings_of(vars(self)["algorithm"]) if "algorithm" in vars(self) else {}
        if name not in settings:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return settings[name]

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuses new values for the settings of the algorithm, which would have no effect."""
        if "algorithm" in vars(self) and name in settings_of(self.algorithm):
            raise AttributeError(
                "Expected settings of the algorithm as arguments. Received: "
                f"{name}={value!r} for an optimizer that exists. Compile with a new one."
            )
        super().__setattr__(name, value)

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Builds the inner optimizer; Keras calls this, for loaded models while it loads them."""
        self.inner_optimizer.build(variables)
        self.built = True
        SPENDING.link(self, [*variables, *self.variables], loadable=variables)

    @property
    def ledger(self) -> PrivacyLedger:
        """What was spent until now on the model that the optimizer belongs to; what is saved."""
        return ledger_in_file.ledger_of(self)

    def apply(self, grads: Sequence, trainable_variables: Sequence | None = None) -> NoReturn:
        """Refuses: gradients that do not come through the mechanism are not private."""
        raise NotPrivateError(checks.NOT_PRIVATE)

    def scale_loss(self, loss: tf.Tensor) -> NoReturn:
        """Refuses: only ordinary, not private, training steps of Keras call this."""
        raise NotPrivateError(checks.NOT_PRIVATE)

    def apply_private(self, gradients: Sequence, variables: Sequence) -> None:
        """Applies private gradients with the inner optimizer."""
        self.inner_optimizer.apply(gradients, variables)

    @property
    def variables(self) -> list[keras.Variable]:
        return self.inner_optimizer.variables

    @property
    def state_variables(self) -> list:
        """All variables of the optimizer whose values come from private steps."""
        return [*self.variables, *self.algorithm_state.weights]

    @property
    def learning_rate(self) -> LearningRate:
        return self.inner_optimizer.learning_rate

    @learning_rate.setter
    def learning_rate(self, learning_rate: LearningRate) -> None:
        self.inner_optimizer.learning_rate = learning_rate

    @property
    def iterations(self) -> keras.Variable:
        return self.inner_optimizer.iterations

    def finalize_variable_values(self, var_list: Sequence[keras.Variable]) -> None:
        finalize(self.inner_optimizer, var_list)

    def save_own_variables(self, store: MutableMapping[str, np.ndarray]) -> None:
        """Stores ledger and algorithm's state; Keras stores the inner optimizer beside them."""
        self.algorithm_state.save(store)
        ledger_in_file.save_ledger(self, self.state_variables, store)

    def load_own_variables(self, store: Mapping[str, np.ndarray]) -> None:
        """Adds the stored ledger to the variables, and takes the stored state of the algorithm.

        What was spent on loaded weights stays spent.

        Raises:
            ValueError: the stored ledger is damaged.
        """
        others = ledger_in_file.load_ledger(self, store)
        if len(others) < len(store.keys()):
            self.algorithm_state.load(others)

    @property
    def privacy_settings(self) -> dict:
        """All arguments by name, but the inner optimizer: not every one of those has a config."""
        settings = {name: getattr(self, name) for name in (*SETTINGS, "name")}
        return {**settings, **settings_of(self.algorithm)}

    def get_config(self) -> dict:
        ledger_in_file.refuse_hdf5(self)
        inner = keras.optimizers.serialize(self.inner_optimizer)
        clip = keras.saving.serialize_keras_object(self.l2_norm_clip)
        return {"optimizer": inner, **self.privacy_settings, "l2_norm_clip": clip}

    @classmethod
    def from_config(cls, config: dict, custom_objects: dict | None = None) -> Self:
        inner = keras.optimizers.deserialize(config["optimizer"], custom_objects)
        return ledger_in_file.made_of_config(cls(**{**config, "optimizer": inner}))
