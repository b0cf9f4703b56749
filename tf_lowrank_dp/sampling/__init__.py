"""Stage 0 of the pipeline: which examples are in a step, and what the accountant is told."""

from tf_lowrank_dp.sampling.batch import (
    DRAW,
    PRESENCE,
    ROW_WEIGHT,
    SAMPLE_WEIGHT,
    X,
    Y,
    is_batch,
    make_batch,
    num_rows,
    unpack_batch,
)
from tf_lowrank_dp.sampling.declared import declared_dataset
from tf_lowrank_dp.sampling.padding import pad_rows, padded_size
from tf_lowrank_dp.sampling.poisson import PoissonSampler
from tf_lowrank_dp.sampling.records import Records
from tf_lowrank_dp.sampling.rows import count_rows, to_rows
from tf_lowrank_dp.sampling.users import UserSampler

__all__ = [
    "DRAW",
    "PRESENCE",
    "ROW_WEIGHT",
    "SAMPLE_WEIGHT",
    "X",
    "Y",
    "PoissonSampler",
    "Records",
    "UserSampler",
    "count_rows",
    "declared_dataset",
    "is_batch",
    "make_batch",
    "num_rows",
    "pad_rows",
    "padded_size",
    "to_rows",
    "unpack_batch",
]
