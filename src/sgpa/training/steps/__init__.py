"""Ways to make a training step: plain, CUDA graph, compiled, distributed."""
