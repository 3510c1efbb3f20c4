"""`sgpa audit`: what calibration and an attached GP would change for somebody's trained classifier."""
