"""Times variants in sessions: processes that hold several instances of each."""
