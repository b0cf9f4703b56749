"""Stage 4: clipping, noise and their composition, the only door from private to public."""
