"""Bottlenecks, predictions, gates and verdicts. Pure."""
