"""Code that runs in the process that holds the GPU."""
