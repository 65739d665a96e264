"""The diff of two variants, and what its lines cost."""
