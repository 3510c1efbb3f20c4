"""Finished runs opened with or without their data, and exported."""

from sgpa.experiments.load import read_cell
from sgpa.experiments.runner import calibrate, rows_of
from sgpa.inference.preferred import preferred_cell
from sgpa.inference.saved import finished_cells


def open_cell(folder, *, data_dir=None):
    """The calibrated method of a finished cell, with its data."""
    (row,) = rows_of(finished_cells(folder)[:1], data_dir=data_dir)
    return calibrate(*row)


def open_trained(folder):
    """A finished run without its data; of several cells the one that `sgpa predict` uses."""
    return read_cell(preferred_cell(folder)[0]).open()


def export(folder, target):
    """Copy what predictions need of a finished run into a new folder; returns that folder."""
    return read_cell(preferred_cell(folder)[0]).export(target)
