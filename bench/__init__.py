"""Measurements of the functions: cold start, CPU and memory, as ratios in one run where possible."""
