"""Molecules as graphs whose nodes and edges are tokens."""
