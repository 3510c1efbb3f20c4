"""Graphs: molecules whose atoms and bonds are tokens."""
