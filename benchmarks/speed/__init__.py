"""The page of speed measurements."""
