"""What a shipped package runs: an operator, who answers its calls, and what a stream has to itself.

``workbench ship`` copies this room into the package with ``cuda``; the workbench itself only writes
its facts and tests it.
"""
