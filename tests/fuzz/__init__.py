"""Hostile calls, files and command lines: `python -m tests.fuzz api|files|entries|cli --count N --seed S`.

Every case follows from its number, so that `--only NUMBER` repeats one. A case fails if it ends in anything
but a result that makes sense or one line of `SgpaError`, if it takes more than 10 s of processor time or a
minute, or if something wrong is accepted. Memory is bounded by a limit of the process.
"""
