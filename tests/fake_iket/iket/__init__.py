"""Stands in for NVIDIA's ``iket``: it runs the command, and copies the trace FAKE_TRACE."""
