"""Where jobs run: in this process, in several, under torchrun, on a Ray cluster."""
