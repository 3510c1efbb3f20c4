"""Uncertainty for a trained Transformer: a sparse GP on every attention head; weights and outputs stay."""
