"""Texts as padded token ids."""
