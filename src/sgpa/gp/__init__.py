"""The equations: kernels, posteriors, likelihoods, the objective. Pure functions of tensors."""
