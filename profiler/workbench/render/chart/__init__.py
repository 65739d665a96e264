"""Charts: scenes built once from judged values, and one writer of SVG for files and pages."""
