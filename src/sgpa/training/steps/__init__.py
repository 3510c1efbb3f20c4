"""Ways to make a training step: plain, captured as a CUDA graph, compiled, distributed."""
