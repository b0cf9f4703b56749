"""What crosses the wall in a private step, as one traced function for each configuration."""

import dataclasses

import keras
import numpy as np
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tests.hostile.models import MODELS, TOKENS
from tests.hostile.records import RECORDS
from tests.release.engines import carriers_of
from tf_lowrank_dp.accounting import Sampling
from tf_lowrank_dp.optimizers.releases import CENTRES, CLIP_NORMS
from tf_lowrank_dp.release.space import ReleaseSpace
from tf_lowrank_dp.tracing import secret_stream
from tf_lowrank_dp.training.compiled_loss import CompiledLoss
from tf_lowrank_dp.training.start_run import start_run

DIRECTIONS, PUBLIC = 3, 6


@dataclasses.dataclass(frozen=True)
class Configuration:
    """A model, an optimizer and how they are run.

    Attributes:
        model: key of `MODELS`.
        optimizer: class of the optimizer.
        arguments: of the optimizer.
        policy: dtype policy.
        microbatch_size: see `make_private`.
        jit_compile: whether XLA compiles the step.
        inner: the inner optimizer.
    """

    model: str
    optimizer: type
    arguments: dict = dataclasses.field(default_factory=dict)
    policy: str = "float32"
    microbatch_size: int | None = None
    jit_compile: bool = False
    inner: str = "adam"


class AsReleased(ReleaseSpace):
    """Another space whose lift gives what is released, as it is, the subspace, and the lift."""

    def __init__(self, space):
        self._space, self.shapes = space, space.shapes

    def refresh(self):
        return self._space.refresh()

    def project(self, gradients, subspace):
        return self._space.project(gradients, subspace)

    def lift(self, released, subspace):
        blocks = [tf.concat([tf.reshape(t, [-1]) for t in block], 0) for block in released]
        return blocks, tensors_of(subspace), self._space.lift(released, subspace)


def tensors_of(subspace):
    """All tensors of a subspace, in a fixed order."""
    if isinstance(subspace, dict):
        subspace = list(subspace.values())
    if isinstance(subspace, (list, tuple)):
        return [tensor for part in subspace for tensor in tensors_of(part)]
    if subspace is None or tf.is_tensor(subspace):
        return [] if subspace is None else [subspace]
    return tensors_of(list(vars(subspace).get("tensors", vars(subspace).values())))


class Harness:
    """A started run of a configuration, and its step up to the wall.

    Attributes:
        mechanism: clips and noise; without noise unless a multiplier is given.
        directions: rows `(k, i)` and `(k, o)` along which public directions of the step lie.
    """

    def __init__(self, configuration, noise_multiplier=0.0):
        make, self.kind, loss = MODELS[configuration.model]
        before = set(secret_stream._STREAMS)
        keras.utils.set_random_seed(1)
        keras.config.set_dtype_policy(configuration.policy)
        try:
            model = tfdp.make_private(make(), microbatch_size=configuration.microbatch_size)
        finally:
            keras.config.set_dtype_policy("float32")
        self.model = model
        self.x_shape = model.input_shape[1:]
        self.y_shape = () if self.kind == TOKENS else model.output_shape[1:]
        optimizer = self._optimizer(configuration)
        model.compile(optimizer, loss=loss, jit_compile=configuration.jit_compile)
        sampling = Sampling.poisson(batch_size=RECORDS, num_examples=100)
        self.run = start_run(model, sampling, steps=10, loss=CompiledLoss(model, RECORDS))
        self.generators = sorted(set(secret_stream._STREAMS) - before, key=id)
        self.mechanism = dataclasses.replace(
            self.run.engine.mechanism, noise_multiplier=noise_multiplier
        )
        engine = dataclasses.replace(
            self.run.engine,
            space=AsReleased(self.run.engine.space),
            mechanism=self.mechanism,
            expected_batch_size=1.0,
        )
        self._step = tf.function(
            lambda batch, presence: engine.private_gradients(
                self.run.loss, batch, presence, jit_compile=configuration.jit_compile
            ),
            autograph=False,
        )
        self.directions = self._directions()
        counters = [generator._draws for generator in self.generators] + [engine.steps]
        seeds = [(v, v.numpy()) for v in model.non_trainable_variables]
        # The bases that a space keeps were found for the directions: the next steps apply them.
        age = getattr(engine.space._space, "_steps", None)
        seeds += [] if age is None else [(age, age.numpy())]
        # They move with each release: here they are those of some training before.
        generator = np.random.default_rng(9)
        for name in optimizer.algorithm_state.names:
            if name.startswith(CENTRES):
                centre = optimizer.algorithm_state[name]
                seeds.append((centre, generator.normal(size=centre.shape).astype(np.float32)))
            elif name == CLIP_NORMS:
                norms = optimizer.algorithm_state[name]
                seeds.append((norms, generator.uniform(0.01, 1, norms.shape).astype(np.float32)))
        variables = [*model.variables, *optimizer.variables]

        def reset():
            for counter in counters:
                counter.assign(tf.zeros_like(counter))
            for variable, value in seeds:
                variable.assign(value)

        self.reset = tf.function(reset, autograph=False)
        self._inside = tf.function(
            lambda: [tf.convert_to_tensor(v) for v in [*variables, *counters]], autograph=False
        )

    def release(self, batch, presence, reset=True):
        """What is released (a float64 vector a block), the subspace, and what the lift gives.

        Args:
            batch: arrays.
            presence: numbers, one a record.
            reset: whether counters and seeds begin anew.
        """
        if reset:
            self.reset()
        batch = {key: tf.constant(value) for key, value in batch.items()}
        blocks, subspace, lifted = self._step(batch, tf.constant(presence, tf.float32))
        released = [block.numpy().astype(np.float64) for block in blocks]
        return released, [tensor.numpy() for tensor in subspace], lifted

    def inside(self):
        """Weights, optimizer state, seeds, counters and ledger, as bytes."""
        arrays = [tensor.numpy().tobytes() for tensor in self._inside()]
        return arrays, self.model.optimizer.ledger.to_json()

    def _optimizer(self, configuration):
        arguments = {"noise_multiplier": 1.0, "seed": 3, **configuration.arguments}
        if configuration.optimizer is tfdp.GEPOptimizer:
            generator = np.random.default_rng(7)
            self._public = [
                generator.normal(size=(PUBLIC, *shape)).astype(np.float32)
                for shape in (self.x_shape, self.y_shape)
            ]
            x, y = self._public
            clips = {"embedding_clip": 0.4, "residual_clip": 0.3}
            arguments = {**clips, "public_data": x, "public_labels": y, **arguments}
        else:
            self._public = None
            arguments = {"l2_norm_clip": 0.5, **arguments}
        return configuration.optimizer(configuration.inner, **arguments)

    def _directions(self):
        """Carriers of the first and last matrices, public examples, or arbitrary rows."""
        subspace = self.run.engine.space.refresh()
        while hasattr(subspace, "inner"):
            subspace = subspace.inner
        if self._public:
            return [array.reshape(PUBLIC, -1).astype(np.float64) for array in self._public]
        generator = np.random.default_rng(5)
        sizes = [shape[-1] if shape else 1 for shape in (self.x_shape, self.y_shape)]
        rows = [generator.normal(size=(DIRECTIONS, size)) for size in sizes]
        carriers = carriers_of(subspace)
        carriers = list(carriers.values()) if isinstance(carriers, dict) else []
        for found in carriers:
            left, right = getattr(found, "left", None), getattr(found, "right", None)
            if left is not None and left.shape[0] == sizes[0]:
                rows[0] = np.float64(left).T
            if right is not None and right.shape[1] == sizes[1]:
                rows[1] = np.float64(right)
        return rows
