"""SASS: what each instruction costs, what the mix of them is, and how two kernels' differ. Pure."""
