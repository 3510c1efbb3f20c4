"""Keep results, make the README's tables, run a queue of jobs."""
