"""One module a verb: where files are opened, progress is shown and exit codes are chosen."""
