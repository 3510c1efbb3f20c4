"""Small files of a user's data."""

import csv


def write_reviews(path, rows=30):
    """A table of texts and labels, `pos` and `neg` in turns."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for i in range(rows):
            writer.writerow([f"a {'good' if i % 2 else 'bad'} film, number {i}", "pos" if i % 2 else "neg"])
    return path
