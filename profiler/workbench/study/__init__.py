"""Finds and checks the workspace: its configuration, studies, variants and steps."""
