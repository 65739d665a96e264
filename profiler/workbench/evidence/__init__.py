"""Hold what was measured: typed records, and the one place that reads and writes them."""
