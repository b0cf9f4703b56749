"""Stage 3: release spaces, one a family of algorithms."""
