"""Measurements of GPs attached to trained Transformers: docs/results/posthoc."""
