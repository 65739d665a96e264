"""What to try next: what limits a variant, and the kind of change that addresses it. Pure."""
