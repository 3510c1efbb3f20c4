"""A saved predictor and new inputs give answers."""
