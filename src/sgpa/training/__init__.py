"""One training loop for every method."""
