"""The command line: a module per verb calls a use case, and has what it prints."""
