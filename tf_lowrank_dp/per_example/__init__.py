"""Stage 2: lazy per-example gradients, per-example losses and the backward passes."""
