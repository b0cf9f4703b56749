"""Stage 2: from a model and a batch to the per-example gradients of all its variables."""
