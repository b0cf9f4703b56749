"""Which operations draw random numbers, and what draws in their place with another key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import tensorflow as tf

from tf_lowrank_dp.tracing.secret_stream import PHILOX


class Source(Protocol):
    """Gives each draw of a traced forward pass its key and counter."""

    def key_and_counter(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Philox's key, uint64 `(1,)`, and counter, uint64 `(2,)`, of a new draw."""
        ...

    def owns(self, resource: tf.Tensor) -> bool:
        """Whether a resource is the state of this source."""
        ...


def _keyed(op_type: str, *names: str) -> Callable:
    """Replaces an operation that takes a key, a counter and an algorithm at positions 1 to 3."""

    def draw(
        inputs: Sequence[tf.Tensor], outputs: Sequence[tf.Tensor], source: Source
    ) -> tf.Tensor:
        key, counter = source.key_and_counter()
        further = dict(zip(names, inputs[4:], strict=True))
        return getattr(tf.raw_ops, op_type)(
            shape=inputs[0], key=key, counter=counter, alg=PHILOX, **further
        )

    return draw


def _keyed_of_dtype(op_type: str) -> Callable:
    """As `_keyed`, for operations whose numbers have the dtype of an attribute."""

    def draw(
        inputs: Sequence[tf.Tensor], outputs: Sequence[tf.Tensor], source: Source
    ) -> tf.Tensor:
        key, counter = source.key_and_counter()
        return getattr(tf.raw_ops, op_type)(
            shape=inputs[0], key=key, counter=counter, alg=PHILOX, dtype=outputs[0].dtype
        )

    return draw


def _integers(
    inputs: Sequence[tf.Tensor], outputs: Sequence[tf.Tensor], source: Source
) -> tf.Tensor:
    key, counter = source.key_and_counter()
    low, high = inputs[-2:]
    return tf.raw_ops.StatelessRandomUniformIntV2(
        shape=inputs[0], key=key, counter=counter, alg=PHILOX, minval=low, maxval=high
    )


def _shuffled(
    inputs: Sequence[tf.Tensor], outputs: Sequence[tf.Tensor], source: Source
) -> tf.Tensor:
    key, counter = source.key_and_counter()
    return tf.raw_ops.StatelessShuffle(value=inputs[0], key=key, counter=counter, alg=PHILOX)


def _seeded(draw: Callable) -> Callable:
    """Replaces an operation that takes a seed, which TensorFlow scrambles one to one."""

    def with_seed(
        inputs: Sequence[tf.Tensor], outputs: Sequence[tf.Tensor], source: Source
    ) -> tf.Tensor:
        key, counter = source.key_and_counter()
        return draw(inputs, outputs, tf.bitcast(key[0] + counter[1], tf.int32))

    return with_seed


_NORMAL = _keyed_of_dtype("StatelessRandomNormalV2")
_UNIFORM = _keyed_of_dtype("StatelessRandomUniformV2")
_TRUNCATED = _keyed_of_dtype("StatelessTruncatedNormalV2")
_CATEGORICAL = _seeded(
    lambda inputs, outputs, seed: tf.raw_ops.StatelessMultinomial(
        logits=inputs[0], num_samples=inputs[1], seed=seed, output_dtype=outputs[0].dtype
    )
)


def _for_each(draw: Callable, parameter: Callable) -> Callable:
    """Replaces an operation that draws a shape for each of its parameters at position 1."""

    def drawn(
        inputs: Sequence[tf.Tensor], outputs: Sequence[tf.Tensor], source: Source
    ) -> tf.Tensor:
        shape = tf.concat([inputs[0], tf.shape(inputs[1], inputs[0].dtype)], axis=0)
        return draw([shape, *parameter(inputs[1])], outputs, source)

    return drawn


def _ended(draw: Callable, parameter: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Numbers of a law that TensorFlow rejects for ever where NaN, or no integer, would come out.

    One such record would hang the step of all.  It gets NaN, or 0 among integers.

    Args:
        draw: takes the parameter and gives the numbers.
        parameter: about as large as what is drawn.
        dtype: of the numbers.
    """
    largest = parameter.dtype.max if dtype.is_floating else dtype.max / 2
    possible = parameter <= tf.cast(largest, parameter.dtype)
    numbers = draw(tf.where(possible, parameter, tf.zeros_like(parameter)))
    if not dtype.is_floating:
        return numbers
    return tf.where(possible, numbers, tf.cast(tf.stop_gradient(parameter), dtype))


def _poisson(
    inputs: Sequence[tf.Tensor], outputs: Sequence[tf.Tensor], seed: tf.Tensor
) -> tf.Tensor:
    dtype = outputs[0].dtype

    def draw(rate: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.StatelessRandomPoisson(shape=inputs[0], seed=seed, lam=rate, dtype=dtype)

    return _ended(draw, inputs[2], dtype)


def _binomial(
    inputs: Sequence[tf.Tensor], outputs: Sequence[tf.Tensor], seed: tf.Tensor
) -> tf.Tensor:
    shape, _, counts, probs = inputs
    dtype = outputs[0].dtype

    def draw(counts: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.StatelessRandomBinomial(
            shape=shape, seed=seed, counts=counts, probs=probs, dtype=dtype
        )

    return _ended(draw, counts, dtype)


_GAMMA = _keyed("StatelessRandomGammaV3", "alpha")
_POISSON = _seeded(_poisson)

# What draws, and what draws instead, from its inputs, its outputs and a source of keys.
DRAWS: dict[str, Callable] = {
    "StatelessRandomUniformV2": _UNIFORM,
    "StatelessRandomUniform": _UNIFORM,
    "RandomUniform": _UNIFORM,
    "StatelessRandomNormalV2": _NORMAL,
    "StatelessRandomNormal": _NORMAL,
    "RandomStandardNormal": _NORMAL,
    "StatelessTruncatedNormalV2": _TRUNCATED,
    "StatelessTruncatedNormal": _TRUNCATED,
    "TruncatedNormal": _TRUNCATED,
    "StatelessRandomUniformIntV2": _integers,
    "StatelessRandomUniformInt": _integers,
    "RandomUniformInt": _integers,
    "StatelessRandomUniformFullIntV2": _keyed_of_dtype("StatelessRandomUniformFullIntV2"),
    "StatelessRandomUniformFullInt": _keyed_of_dtype("StatelessRandomUniformFullIntV2"),
    "StatelessRandomGammaV3": _GAMMA,
    "RandomGamma": _for_each(_GAMMA, lambda alpha: [None, None, None, alpha]),
    "StatelessShuffle": _shuffled,
    "RandomShuffle": _shuffled,
    "StatelessMultinomial": _CATEGORICAL,
    "Multinomial": _CATEGORICAL,
    "StatelessRandomGammaV2": _seeded(
        lambda inputs, outputs, seed: tf.raw_ops.StatelessRandomGammaV2(
            shape=inputs[0], seed=seed, alpha=inputs[2]
        )
    ),
    "StatelessRandomBinomial": _seeded(_binomial),
    "StatelessRandomPoisson": _POISSON,
    "RandomPoissonV2": _for_each(_POISSON, lambda rate: [None, rate]),
    "StatelessParameterizedTruncatedNormal": _seeded(
        lambda inputs, outputs, seed: tf.raw_ops.StatelessParameterizedTruncatedNormal(
            shape=inputs[0],
            seed=seed,
            means=inputs[2],
            stddevs=inputs[3],
            minvals=inputs[4],
            maxvals=inputs[5],
        )
    ),
}

# What draws by a state, and runs although it is replaced, but would never return from a parameter
# that is NaN, and where that stands.
NEVER_ENDING = {"RandomPoissonV2": 1}


def _mean(parameter: Callable, for_each: bool = False) -> Callable:
    """The mean of a law, of the shape in which it would be drawn."""

    def mean(inputs: Sequence[tf.Tensor], outputs: Sequence[tf.Tensor]) -> tf.Tensor:
        value, shape = parameter(*inputs[1:]), inputs[0]
        if for_each:
            shape = tf.concat([shape, tf.shape(value, shape.dtype)], axis=0)
        return tf.cast(tf.broadcast_to(value, shape), outputs[0].dtype)

    return mean


def _likeliest(inputs: Sequence[tf.Tensor], outputs: Sequence[tf.Tensor]) -> tf.Tensor:
    choice = tf.argmax(inputs[0], axis=-1, output_type=outputs[0].dtype)
    return tf.repeat(choice[:, None], inputs[1], axis=1)


# Those that read data: rows to exchange, probabilities, parameters; and what is in the middle of
# what they draw: a number that each row has by itself.
OF_DATA: dict[str, Callable] = {
    **dict.fromkeys(["StatelessShuffle", "RandomShuffle"], lambda inputs, outputs: inputs[0]),
    **dict.fromkeys(["StatelessMultinomial", "Multinomial"], _likeliest),
    "StatelessRandomGammaV2": _mean(lambda seed, alpha: alpha),
    "StatelessRandomGammaV3": _mean(lambda key, counter, algorithm, alpha: alpha),
    "RandomGamma": _mean(lambda alpha: alpha, for_each=True),
    "StatelessRandomBinomial": _mean(lambda seed, counts, probs: counts * probs),
    "StatelessRandomPoisson": _mean(lambda seed, rate: rate),
    "RandomPoissonV2": _mean(lambda rate: rate, for_each=True),
    "StatelessParameterizedTruncatedNormal": _mean(lambda seed, means, *rest: means),
}

# What makes keys and counters, which are not used, and a derivative.
_HARMLESS = {
    "StatelessRandomGetKeyCounter",
    "StatelessRandomGetKeyCounterAlg",
    "StatelessRandomGetAlg",
    "RandomGammaGrad",
}
_RANDOM = (
    *("Random", "Rng", "Multinomial", "Sampler", "Shuffle", "TruncatedNormal"),
    *("StatefulUniform", "StatefulStandardNormal", "SampleDistorted"),
)


def is_random(op_type: str) -> bool:
    """Whether an operation draws, or might: its name says so."""
    if op_type in _HARMLESS:
        return False
    return op_type in DRAWS or any(word in op_type for word in _RANDOM)
