"""Points and ceilings of the hierarchical roofline."""
