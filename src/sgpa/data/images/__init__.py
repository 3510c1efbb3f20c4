"""Image data sets as uint8 tensors."""
