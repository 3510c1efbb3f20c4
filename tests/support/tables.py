"""Small files of texts and tables."""

import pyarrow as pa
import pyarrow.parquet as pq


def write(path, content):
    path.write_text(content, encoding="utf-8")
    return path


def parquet(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path
