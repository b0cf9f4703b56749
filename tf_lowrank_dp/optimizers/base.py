"""What all private optimizers share: privacy arguments, the inner optimizer, the ledger."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Mapping, Sequence

import keras
import numpy as np

from tf_lowrank_dp import _validate
from tf_lowrank_dp.accounting import PrivacyLedger
from tf_lowrank_dp.errors import NotPrivateError
from tf_lowrank_dp.gradient_methods.methods import METHODS
from tf_lowrank_dp.per_example.parameter import Parameter
from tf_lowrank_dp.release.scaled import ScaledSpace, scales_of
from tf_lowrank_dp.release.space import Normal, ReleaseSpace

_LEAST_CLIP = 1e-12
_LEDGER_KEY = "privacy_ledger"
_SIGMA_KEY = "calibrated_noise_multiplier"


class DPOptimizer(keras.optimizers.Optimizer):
    """Base of the private optimizers: an inner Keras optimizer that only sees private gradients.

    An algorithm is a subclass with one method, `release_space`.

    Args:
        optimizer: the inner optimizer: a Keras optimizer, its name or its config.  Its learning
            rate, momentum, weight decay and EMA act on the private gradient and cost nothing.
        l2_norm_clip: largest L2 norm of one example's contribution; `inf` (no clipping) only
            with `noise_multiplier=0`.
        epsilon: target epsilon; the noise multiplier is calibrated when training starts.
            Needs `delta`; excludes `noise_multiplier`.
        delta: target delta, below 1 / number of examples.  With `noise_multiplier` it is
            optional, used by reports.
        noise_multiplier: standard deviation of the noise over `l2_norm_clip`, the effective value
            of the whole release; 0 means no noise, no privacy, epsilon infinite.
        planned_steps: number of steps that the budget shall last, when training spans several
            calls of `fit`; None for those of the `fit` that starts.
        clipping: "flat" clips the joint norm over all that is released; "per_layer" clips each
            layer's part at `l2_norm_clip / sqrt(layers)`, so that the root of the sum of squares
            is `l2_norm_clip` again.
        gradient_scale: factors by which gradients are multiplied before they are clipped; the
            private gradient is divided by them.  Keys are parts of variable paths: with
            `{"classifier": 0.1}` this layer counts less in the joint norm and gets ten times
            the noise (the published RGP code does so).
        gradient_method: "auto", "bookkeeping", "reweight", "vectorized" or "loop"; all give the
            same numbers.
        accountant: "pld" (tight) or "rdp".
        seed: integer that makes sampling and noise reproducible, for tests; such a run is not
            private and its statement says so.
        name: name of the optimizer.

    Raises:
        ValueError: missing, negative, NaN or contradictory privacy arguments, or an inner
            optimizer that would spoil the guarantee (gradient accumulation, loss scaling).
    """

    mechanism_name = "DP"

    def __init__(
        self,
        optimizer,
        *,
        l2_norm_clip: float,
        epsilon: float | None = None,
        delta: float | None = None,
        noise_multiplier: float | None = None,
        planned_steps: int | None = None,
        clipping: str = "flat",
        gradient_scale: Mapping[str, float] | None = None,
        gradient_method: str = "auto",
        accountant: str = "pld",
        seed: int | None = None,
        name: str | None = None,
    ):
        _validate.epsilon_delta_or_noise_multiplier(
            epsilon=epsilon, delta=delta, noise_multiplier=noise_multiplier
        )
        check_clip(noise_multiplier, l2_norm_clip=l2_norm_clip)
        _validate.one_of(("flat", "per_layer"), clipping=clipping)
        for part, scale in (gradient_scale or {}).items():
            _validate.positive(**{f"gradient_scale[{part!r}]": scale})
        _validate.one_of(tuple(METHODS), gradient_method=gradient_method)
        _validate.one_of(("pld", "rdp"), accountant=accountant)
        if planned_steps is not None:
            _validate.integer_at_least(1, planned_steps=planned_steps)
        inner = keras.optimizers.get(optimizer)
        _check_inner(inner)
        super().__init__(learning_rate=0.0, name=name)
        self.inner_optimizer = inner
        self.l2_norm_clip = float(l2_norm_clip)
        self.epsilon = epsilon
        self.delta = delta
        self.noise_multiplier = noise_multiplier
        self.planned_steps = planned_steps
        self.clipping = clipping
        self.gradient_scale = dict(gradient_scale or {})
        self.gradient_method = gradient_method
        self.accountant = accountant
        self.seed = seed
        self.calibrated_noise_multiplier: float | None = None
        self.ledger = PrivacyLedger()
        self.ledger_was_loaded = False
        self.before_save = lambda: None

    @abc.abstractmethod
    def release_space(self, parameters: Sequence[Parameter], normal: Normal) -> ReleaseSpace:
        """The release space of this algorithm, for gradients that are not scaled.

        Args:
            parameters: the trainable variables.
            normal: public random numbers.
        """

    def scaled_release_space(self, parameters: Sequence[Parameter], normal: Normal) -> ReleaseSpace:
        """The release space with `gradient_scale`; what a training run uses."""
        space = self.release_space(parameters, normal)
        if not self.gradient_scale:
            return space
        return ScaledSpace(space, scales_of(parameters, self.gradient_scale))

    def block_clips(self, num_blocks: int) -> tuple[float, ...]:
        """Largest norm of an example's part in each block; squares add up to `l2_norm_clip^2`."""
        return (self.l2_norm_clip / math.sqrt(num_blocks),) * num_blocks

    def on_start(self, parameters: Sequence[Parameter]) -> None:
        """Called before the first step of a training run."""

    public_data: object = None
    """Public examples of an algorithm that uses some; other ones need another training run."""

    public_gradients: Callable[..., list] | None = None
    """Differentiates public examples; `training` sets it before each run."""

    on_build = staticmethod(lambda optimizer: None)
    """Called with an optimizer that was built; `training` finds loaded models with it."""

    def build(self, variables):
        """Builds the inner optimizer; Keras calls this, for loaded models while it loads them."""
        self.inner_optimizer.build(variables)
        self.built = True
        self.on_build(self)

    def apply(self, grads, trainable_variables=None):
        """Refuses: gradients that do not come through the mechanism are not private."""
        raise NotPrivateError(_NOT_PRIVATE)

    def scale_loss(self, loss):
        """Refuses: only ordinary, not private, training steps of Keras call this."""
        raise NotPrivateError(_NOT_PRIVATE)

    def apply_private(self, gradients: Sequence, variables: Sequence) -> None:
        """Applies private gradients with the inner optimizer."""
        self.inner_optimizer.apply(gradients, variables)

    @property
    def variables(self):
        return self.inner_optimizer.variables

    @property
    def learning_rate(self):
        return self.inner_optimizer.learning_rate

    @learning_rate.setter
    def learning_rate(self, learning_rate):
        self.inner_optimizer.learning_rate = learning_rate

    @property
    def iterations(self):
        return self.inner_optimizer.iterations

    def finalize_variable_values(self, var_list):
        self.inner_optimizer.finalize_variable_values(var_list)

    def restore_point(self) -> Callable[[], None]:
        """Returns a function that gives state which is in no `variables` its present value."""
        sigma = self.calibrated_noise_multiplier

        def restore():
            self.calibrated_noise_multiplier = sigma

        return restore

    def save_own_variables(self, store):
        """Stores the ledger; Keras stores the inner optimizer beside it."""
        self.before_save()
        store[_LEDGER_KEY] = np.frombuffer(self.ledger.to_json().encode(), np.uint8)
        if self.calibrated_noise_multiplier is not None:
            store[_SIGMA_KEY] = np.float64(self.calibrated_noise_multiplier)

    def load_own_variables(self, store):
        """Merges the stored ledger: what was spent on loaded weights stays spent.

        Where there is none, or it is damaged, the prior spend is unknown from then on.

        Raises:
            ValueError: the stored ledger is damaged.
        """
        if _LEDGER_KEY not in store.keys():
            self.ledger.mark_prior_spend_unknown()
            return
        try:
            stored = np.asarray(store[_LEDGER_KEY], np.uint8).tobytes().decode()
            self.ledger.merge(PrivacyLedger.from_json(stored))
        except ValueError:
            self.ledger.mark_prior_spend_unknown()
            raise
        self.ledger_was_loaded = True
        if _SIGMA_KEY in store.keys():
            self.calibrated_noise_multiplier = float(np.asarray(store[_SIGMA_KEY]))

    def get_config(self) -> dict:
        return {
            "optimizer": keras.optimizers.serialize(self.inner_optimizer),
            "l2_norm_clip": self.l2_norm_clip,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "noise_multiplier": self.noise_multiplier,
            "planned_steps": self.planned_steps,
            "clipping": self.clipping,
            "gradient_scale": self.gradient_scale,
            "gradient_method": self.gradient_method,
            "accountant": self.accountant,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        inner = config.pop("optimizer")
        return cls(keras.optimizers.deserialize(inner, custom_objects), **config)


_NOT_PRIVATE = (
    "Expected a private training step. Received: an ordinary one, in which this optimizer would "
    "update the weights with gradients that are neither clipped nor noised. Call "
    "tfdp.make_private(model) before model.fit (after loading a model as well), or use "
    "tfdp.PrivateTrainer in a custom training loop."
)


def check_clip(noise_multiplier, **named) -> None:
    """Checks one clip norm, given by its name: positive, and finite where there is noise.

    Raises:
        ValueError: it is not.
    """
    clip = _validate.positive_or_infinite(**named)
    [name] = named
    if clip < _LEAST_CLIP:
        raise ValueError(
            f"Expected {name} of at least {_LEAST_CLIP}. Received: {clip}. Squares "
            "of such small norms vanish in float32, so they could not be clipped. Scale the loss."
        )
    if math.isinf(clip) and noise_multiplier != 0:
        raise ValueError(
            f"Expected a finite {name}, to which the noise is scaled. Received: "
            f"{name}=inf with noise_multiplier={noise_multiplier}. Choose a finite clip; "
            "inf is for comparisons without privacy and requires noise_multiplier=0."
        )


def _check_inner(inner) -> None:
    if isinstance(inner, DPOptimizer):
        raise ValueError(
            f"Expected an ordinary Keras optimizer inside. Received: {type(inner).__name__}, which "
            "is private itself. Pass its inner optimizer."
        )
    if isinstance(inner, keras.optimizers.LossScaleOptimizer) or inner.loss_scale_factor:
        raise ValueError(
            "Expected an inner optimizer without loss scaling. Received: one with it. Clipping "
            "and noise act on true gradients in float32, which do not underflow: remove it."
        )
    if inner.gradient_accumulation_steps:
        raise ValueError(
            "Expected gradient_accumulation_steps=None on the inner optimizer. Received: "
            f"{inner.gradient_accumulation_steps}. It would pay for noise once per microbatch. "
            "Use tfdp.make_private(model, microbatch_size=...) to bound memory instead."
        )
