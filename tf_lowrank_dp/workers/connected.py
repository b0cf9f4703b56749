"""Workers that are connected by TensorFlow's collective operations."""

from __future__ import annotations

import contextlib
import re
import zlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from tf_lowrank_dp._tensorflow import abort_collectives
from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.errors import WorkerLostError
from tf_lowrank_dp.workers.agreement import Disagreement
from tf_lowrank_dp.workers.alone import Needed, Sums, Workers
from tf_lowrank_dp.workers.leaves import map_leaves

_GROUPS = {"device": 7_150, "host": 7_151}  # not those that tf.distribute hands out
_AT_ONCE = 2**23  # numbers that travel in one message
_WORDS = 4_096  # int32 of a part of a text
_ABORTED = "Collective ops is aborted by: "
_SENT_AS = {
    **{dtype: tf.float32 for dtype in (tf.bfloat16, tf.float16)},
    **{dtype: tf.int32 for dtype in (tf.int8, tf.uint8, tf.int16, tf.uint16)},
    tf.uint32: tf.int64,
}
"""Types that TensorFlow cannot send, and those that hold their values."""


class ConnectedWorkers(Workers):
    """Processes that the strategy given has connected; it is used for nothing else.

    Formal guarantees:

    * what `added` returns is the sum over all workers, to which noise was added exactly once: each
      message has the number of its sources and of the workers in it, and another number is an
      error, before the sums are used;
    * what `added` and `of_chief` return has the same bits on every worker.

    A message is known by its purpose and its size, so that it does not matter when a worker traces
    what, and several runs in one process have messages of their own.

    Args:
        strategy: keeps the connection.
        count: number of processes.
        index: of this one.
    """

    def __init__(self, strategy: tf.distribute.Strategy, count: int, index: int):
        self._strategy = strategy
        self.count, self.index = count, index
        on_gpu = bool(tf.config.get_visible_devices("GPU"))
        self._hint = {"device": "nccl" if on_gpu else "ring", "host": "ring"}
        self._gathered = tf.function(self._gather, autograph=False)

    def added(
        self, sums: Sequence[Sequence[tf.Tensor]], sources: int, needed: Needed | None = None
    ) -> Sums:
        return _in_graph(lambda: self._added(sums, sources, needed))

    def of_chief(self, structure: Nested, purpose: str = "subspace") -> Nested:
        leaves: list[tf.Tensor] = []
        map_leaves(leaves.append, structure)
        remaining = iter(_in_graph(lambda: self._of_chief(leaves, purpose)) if leaves else [])
        return map_leaves(lambda _: next(remaining), structure)

    def _added(
        self, sums: Sequence[Sequence[tf.Tensor]], sources: int, needed: Needed | None
    ) -> Sums:
        guard = tf.constant([sources, 1.0])
        tensors = [tensor for block in sums for tensor in block]
        masks = [mask for block in needed or [] for mask in block] or [None] * len(tensors)
        chosen = list(map(_chosen, tensors, masks))
        *flat, found = self._in_packs([*chosen, guard], self._reduced, "sums")
        flat = list(map(_placed, flat, tensors, masks))
        once = tf.debugging.assert_equal(
            found,
            [1.0, float(self.count)],
            f"Expected one source of noise and {self.count} workers in a step. Received: the "
            "numbers below. The step was not taken. Restart the job",
        )
        with tf.control_dependencies([once]):
            remaining = iter([tf.identity(tensor) for tensor in flat])
        return [[next(remaining) for _ in block] for block in sums]

    def _of_chief(self, leaves: Sequence[tf.Tensor], purpose: str) -> list[tf.Tensor]:
        wide = [tf.cast(leaf, _SENT_AS.get(leaf.dtype, leaf.dtype)) for leaf in leaves]
        send = self._sent if purpose == "subspace" else self._sent_by_host
        found: dict[int, tf.Tensor] = {}
        for dtype in dict.fromkeys(leaf.dtype for leaf in wide):
            places = [i for i, leaf in enumerate(wide) if leaf.dtype == dtype]
            sent = self._in_packs([wide[i] for i in places], send, purpose)
            found.update(zip(places, sent, strict=True))
        return [tf.cast(found[i], leaf.dtype) for i, leaf in enumerate(leaves)]

    def gather(self, text: str) -> list[str]:
        content = text.encode()
        places = self._rows(self.index, len(content))
        sizes = [size for _, size in places]
        parts = -(-max(sizes) // (4 * _WORDS))
        mine = np.frombuffer(content.ljust(4 * _WORDS * parts), np.int32).reshape(parts, 1, _WORDS)
        parts_of_all = [self._gathered(tf.constant(part)).numpy() for part in mine]
        rows = np.concatenate(parts_of_all, axis=1) if parts else np.zeros([self.count, 0])
        found = zip(places, rows, strict=True)
        texts = {index: row.tobytes()[:size].decode() for (index, size), row in found}
        return [texts[index] for index in range(self.count)]

    def gather_numbers(self, *numbers: int) -> list[tuple[int, ...]]:
        return [tuple(row) for _, *row in sorted(self._rows(self.index, *numbers))]

    def _rows(self, *numbers: int) -> list[list[int]]:
        """The numbers of all workers, in TensorFlow's order, which need not be ours."""
        return self._gathered(tf.constant([numbers], tf.int32)).numpy().tolist()

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        try:
            yield
        except Disagreement:  # on all of them
            raise
        except tf.errors.OpError as error:
            if _ABORTED not in str(error):
                self._abort(error)
                raise
            [cause] = re.findall(f"(?:{_ABORTED})+(.*)", str(error))[:1]
            raise WorkerLostError(
                f"Expected all {self.count} workers to train on. Received: one that has ended "
                f"({cause}). No step is taken without it. Start them again, any number of them: "
                "with ledger_path and BackupAndRestore they go on where the chief has saved."
            ) from error
        except BaseException as error:
            self._abort(error)
            raise

    def _abort(self, error: BaseException) -> None:
        abort_collectives(f"worker {self.index} raised {type(error).__name__}: {error}")

    def _in_packs(
        self, tensors: Sequence[tf.Tensor], send: Callable, purpose: str
    ) -> list[tf.Tensor]:
        """Sends tensors of one type, a few at once, and gives them their shapes again."""
        sizes = [tensor.shape.num_elements() or 0 for tensor in tensors]  # 0 where not yet known
        found: list[tf.Tensor] = []
        first = 0
        while first < len(tensors):
            last = first + 1
            while last < len(tensors) and sum(sizes[first : last + 1]) <= _AT_ONCE:
                last += 1
            group = slice(first, last)
            flat = tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors[group]], 0)
            key = _key(purpose, len(found), flat)
            parts = tf.split(send(flat, key), [tf.size(tensor) for tensor in tensors[group]])
            pairs = zip(parts, tensors[group], strict=True)
            found += [tf.reshape(part, tf.shape(tensor)) for part, tensor in pairs]
            first = last
        return found

    def _reduced(self, flat: tf.Tensor, key: int) -> tf.Tensor:
        return tf.raw_ops.CollectiveReduceV2(
            input=flat,
            instance_key=key,
            ordering_token=[],
            merge_op="Add",
            final_op="Id",
            **self._among("device"),
        )

    def _sent(self, flat: tf.Tensor, key: int, group: str = "device") -> tf.Tensor:
        among = self._among(group)
        if self.is_chief:
            sent = tf.raw_ops.CollectiveBcastSendV2(input=flat, instance_key=key, **among)
        else:
            sent = tf.raw_ops.CollectiveBcastRecvV2(
                shape=flat.shape, T=flat.dtype, instance_key=key, **among
            )
        return tf.ensure_shape(sent, flat.shape)

    def _sent_by_host(self, flat: tf.Tensor, key: int) -> tf.Tensor:
        with tf.device("CPU:0"):
            return self._sent(flat, key, "host")

    def _gather(self, row: tf.Tensor) -> tf.Tensor:
        with tf.device("CPU:0"):
            return tf.raw_ops.CollectiveGatherV2(
                input=row,
                instance_key=_key("gather", 0, row),
                ordering_token=[],
                **self._among("host"),
            )

    def _among(self, group: str) -> dict:
        return {
            "group_size": self.count,
            "group_key": _GROUPS[group],
            "communication_hint": self._hint[group],
            "timeout_seconds": 0.0,
        }


def _in_graph(function: Callable) -> Nested:
    """What a function of tensors returns; collective operations work in graphs only."""
    if tf.executing_eagerly():
        return tf.function(function, autograph=False)()
    return function()


def _chosen(tensor: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
    """The numbers where a mask has ones, `(n,)`; the tensor without a mask."""
    return tensor if mask is None else tf.boolean_mask(tensor, _everywhere(mask, tensor))


def _placed(chosen: tf.Tensor, tensor: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
    """The numbers that `_chosen` gave where they were in the tensor, and zeros."""
    if mask is None:
        return tf.ensure_shape(chosen, tensor.shape)
    return tf.scatter_nd(tf.where(_everywhere(mask, tensor)), chosen, tensor.shape)


def _everywhere(mask: tf.Tensor, tensor: tf.Tensor) -> tf.Tensor:
    return tf.broadcast_to(mask, tensor.shape) > 0.0


def _key(purpose: str, number: int, flat: tf.Tensor) -> int | tf.Tensor:
    """TensorFlow's key of a message, which has one size for good; a chance of 2^-30 to collide."""
    size = flat.shape.num_elements()
    key = zlib.crc32(f"{purpose} {number} {flat.dtype.name} {size}".encode()) & 0x3FFFFFFF
    return key if size is not None else key + tf.size(flat)
