"""Captures and evidence folders into tall tables. Reads files; never writes."""
