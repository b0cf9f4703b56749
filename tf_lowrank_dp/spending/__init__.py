"""What was spent, and on which variables: one owner for the whole process, `SPENDING`."""

from tf_lowrank_dp.spending.owner import SPENDING, Record, Spending, merged

__all__ = ["SPENDING", "Record", "Spending", "merged"]
