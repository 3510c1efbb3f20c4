"""Numbers about predictions: metrics, robustness, out-of-distribution detection."""
