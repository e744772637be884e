import numpy as np
import pytest

from selfcal.experiments._tables import COLUMNS, mean_and_error, summary_table


def test_mean_and_error():
    mean, error = mean_and_error([1.0, 2.0, 3.0])
    assert (mean, error) == (2.0, pytest.approx(1 / np.sqrt(3)))
    assert np.isnan(mean_and_error([1.0])[1])


def test_table_has_a_row_per_method_and_a_column_per_data_set():
    rows = [
        {"dataset": d, "method": m, "seed": s, **dict.fromkeys(COLUMNS, 0.1 * s + len(d))}
        for d in ("a", "bb")
        for m in ("x", "y")
        for s in (0, 1)
    ]
    table = summary_table(rows, {"x": "Method X", "y": "Method Y"})
    assert table.startswith("Mean ± standard error over 2 seeds.")
    assert table.count("| Method X | 1.0500 ± 0.0500 | 2.0500 ± 0.0500 |") == len(COLUMNS)
