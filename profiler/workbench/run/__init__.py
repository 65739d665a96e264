"""The only stage that starts processes or sees a GPU."""
