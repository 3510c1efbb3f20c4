"""Scripts for maintainers: archive results, update tables in the docs, run a queue of jobs."""
