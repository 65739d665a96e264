"""Run a shipped package: an operator, who answers its calls, and what a stream has to itself."""
