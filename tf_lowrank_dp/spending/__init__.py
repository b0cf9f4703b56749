"""What was spent, and on which variables: one owner for the whole process, `SPENDING`."""

from tf_lowrank_dp.spending.files import file_of, open_file
from tf_lowrank_dp.spending.owner import SPENDING, Spending
from tf_lowrank_dp.spending.record import Record, merged

__all__ = ["SPENDING", "Record", "Spending", "file_of", "merged", "open_file"]
