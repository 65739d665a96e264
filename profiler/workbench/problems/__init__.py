"""Kernels and problems in other people's formats, made into a study of a scratch workspace."""
