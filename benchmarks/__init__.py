"""Measurements: ratios against baselines timed in the same run."""
