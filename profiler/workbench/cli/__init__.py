"""The command line: a module per verb parses its options, calls a use case and prints."""
