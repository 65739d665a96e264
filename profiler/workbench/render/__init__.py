"""Terminal, Markdown, SVG and JSON from what was judged. Writes nothing by itself."""
