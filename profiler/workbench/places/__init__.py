"""Measuring on other cards and other machines: blocks, what carries them, what becomes of them."""
