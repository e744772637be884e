"""Columns of a table that make groups: read as people write them, as the training reads them."""

import numpy as np
import polars as pl
import pytest

from selfcal.reporting._groups import cut
from selfcal.tabular.schema import Column
from selfcal.workflows._group_values import group_values


@pytest.mark.parametrize("cells", [["$1,200", "$3.50"], ["12%", "15%"], ["1.234,50 €", "3 €"], [1, 2]])
def test_numbers_are_read_in_their_notation(cells):
    values = group_values(pl.Series(cells * 20))
    assert values.dtype == np.float64
    assert not np.isnan(values).any()


@pytest.mark.parametrize("cells", [["31/12/2024", "01/02/2024"], ["2024-12-31", "2024-02-01"]])
def test_dates_are_cut_at_quantiles(cells):
    assert cut(group_values(pl.Series(cells * 20)))[1] == ["2024-02-01", "2024-12-31"]


def test_what_the_model_knows_about_a_column_decides():
    cells = pl.Series("c", ["01/02/2024", "03/04/2024"])
    assert group_values(cells).dtype == object  # a day and month in doubt
    dates = group_values(cells, Column("c", "date", form="%m/%d/%Y"))
    assert dates.astype("datetime64[D]").astype(str).tolist() == ["2024-01-02", "2024-03-04"]
    assert group_values(pl.Series(["1", "2"]), Column("c", "category")).tolist() == ["1", "2"]
