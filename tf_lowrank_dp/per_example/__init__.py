"""The gradients themselves: lazy per-example gradients of one variable, and per-example losses."""
