"""From inputs to tokens."""
