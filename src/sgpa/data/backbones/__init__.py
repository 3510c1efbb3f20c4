"""Frozen pretrained networks, whose hidden states are the inputs of a model."""
