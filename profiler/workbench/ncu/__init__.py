"""All that knows Nsight Compute; the only room that imports ncu_report."""
