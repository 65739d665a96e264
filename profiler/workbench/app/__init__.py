"""Use cases: what the command line, the library and a remote worker have in common."""
