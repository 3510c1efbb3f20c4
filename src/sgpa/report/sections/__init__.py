"""Sections of the report page."""
