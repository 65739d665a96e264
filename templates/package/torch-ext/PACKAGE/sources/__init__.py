"""The study's Python."""
