"""The command line: parse, call, print. Nothing here imports torch before a command needs it."""

from sgpa.cli.app import main

__all__ = ["main"]
