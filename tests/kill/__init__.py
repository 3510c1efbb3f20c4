"""A benchmark that is killed: `python -m tests.kill --kills 100 --terms 50`."""
