"""Many files are one table, however many processes read them and whatever happens in between."""

import json
import os

import polars as pl
import pytest
from joblib import parallel_config

from selfcal.errors import ConfigError, DataError
from selfcal.workflows import parts
from selfcal.workflows.parts import evaluate_parts, find_parts
from tests.workflows.test_sums import N, table

LENGTH = 800


@pytest.fixture
def files(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for number, part in enumerate(table().iter_slices(LENGTH)):
        part.write_parquet(folder / f"part-{number + 8}.parquet")
    (folder / "_SUCCESS").touch()
    return find_parts([str(folder)])


@pytest.fixture
def opened(monkeypatch):
    """The names of the parts that are read to their end."""
    names = []
    real = parts.part_sums
    monkeypatch.setattr(
        parts, "part_sums", lambda path, *rest: (names.append(os.path.basename(path)), real(path, *rest))[1]
    )
    return names


def test_files_are_found_in_the_order_of_their_numbers(files, tmp_path):
    names = [os.path.basename(path) for path in files]
    assert names == ["part-8.parquet", "part-9.parquet", *(f"part-{i}.parquet" for i in (10, 11, 12))]
    assert find_parts([str(tmp_path / "in" / "*.parquet")]) == files
    assert find_parts(files[::-1]) == files[::-1]


@pytest.mark.parametrize(
    ("sources", "error", "message"),
    [
        (["in/*.csv"], DataError, "matches none"),
        (["empty"], DataError, "must hold files"),
        (["in/part-8.parquet", "in/*.parquet"], ConfigError, "is named twice"),
        (["in/part-8.parquet", "-"], ConfigError, "Standard input"),
    ],
)
def test_sources_that_are_no_files(files, tmp_path, monkeypatch, sources, *, error, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(error, match=message):
        find_parts(sources)


@pytest.mark.parametrize("workers", ["threading", pytest.param("loky", marks=pytest.mark.slow)])
def test_the_number_of_workers_changes_no_bit(files, workers):
    one = evaluate_parts(files, "y")
    with parallel_config(workers):
        two = evaluate_parts(files, "y", jobs=2)
    assert one.sums.rows == N
    assert one.sums.to_dict() == two.sums.to_dict()


def test_parts_are_evaluated_as_one_table_of_any_format(files, tmp_path):
    one = evaluate_parts(files, "y")
    whole = tmp_path / "whole.csv"
    table().write_csv(whole)
    text = evaluate_parts([str(whole)], "y").sums.report().methods[0]
    for name in ("accuracy", "ece", "log_loss", "brier_score"):
        ours = getattr(one.sums.report().methods[0], name).value
        assert ours == pytest.approx(getattr(text, name).value, rel=1e-12)


def test_finished_parts_are_not_read_again(files, tmp_path, opened):
    folder = tmp_path / "sums"
    seen = []

    def stop(done, rows):
        seen.append((done, rows))
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate_parts(files, "y", folder=folder, watch=stop)
    assert seen == [(1, 800), (2, 1600), (3, 2400)]
    assert len(opened) == 3
    resumed = evaluate_parts(files, "y", folder=folder)
    assert (len(opened), resumed.reused, resumed.parts) == (5, 3, 5)
    assert resumed.sums.to_dict() == evaluate_parts(files, "y").sums.to_dict()


@pytest.mark.parametrize("change", ["part", "settings", "sums"])
def test_sums_of_another_file_other_settings_or_damaged_ones_are_not_used(files, tmp_path, opened, change):
    folder = tmp_path / "sums"
    before = evaluate_parts(files, "y", folder=folder)
    opened.clear()
    options = {}
    if change == "part":
        table()[:LENGTH].head(500).write_parquet(files[0])
    elif change == "settings":
        options = {"n_bins": 10}
    else:
        (file,) = folder.glob("part-10.parquet-*")
        kept = json.loads(file.read_text())
        kept["sums"] = kept["sums"].replace('"rows": 800', '"rows": 900')
        file.write_text(json.dumps(kept))
    again = evaluate_parts(files, "y", folder=folder, **options)
    expected = {"part": ["part-8.parquet"], "sums": ["part-10.parquet"]}
    assert opened == expected.get(change, [os.path.basename(path) for path in files])
    assert again.sums.rows == before.sums.rows - (300 if change == "part" else 0)


def test_a_folder_with_other_files_is_left_alone(files, tmp_path):
    with pytest.raises(ConfigError, match="--sums must name a folder that is new"):
        evaluate_parts(files, "y", folder=tmp_path)
    with pytest.raises(ConfigError, match="is a file"):
        evaluate_parts(files, "y", folder=tmp_path / "in" / "_SUCCESS")


def spoil(path, how):
    part = table()[:LENGTH]
    if how == "cut off":
        os.truncate(path, os.path.getsize(path) // 2)
    elif how == "lacks a column":
        part.drop("prob_b").write_parquet(path)
    elif how == "another column":
        part.with_columns(prob_d=0.0).write_parquet(path)
    elif how == "another kind":
        part.with_columns(prob_b=part["prob_b"].cast(str)).write_parquet(path)
    elif how == "bad row":
        part.with_columns(prob_b=0.9).write_parquet(path)
    elif how == "gone":
        os.unlink(path)


@pytest.mark.parametrize(
    ("number", "how", "message"),
    [
        (0, "cut off", "part-8.parquet"),
        (0, "gone", "cannot be opened"),
        (2, "cut off", "part-10.parquet"),
        (2, "lacks a column", "lacks 'prob_b'"),
        (2, "another column", "also has 'prob_d'"),
        (2, "another kind", "'prob_b' must hold numbers, as in .*; here it holds text"),
        (2, "bad row", "sum to one"),
        (2, "gone", "cannot be opened"),
    ],
)
def test_a_part_that_cannot_be_used_is_named_or_skipped(files, number, how, message):
    spoil(files[number], how)
    with pytest.raises(DataError, match=message) as caught:
        evaluate_parts(files, "y")
    assert files[number] in str(caught.value)
    found = evaluate_parts(files, "y", skip_corrupt=True)
    assert found.sums.rows == N - LENGTH
    (reason,) = found.skipped
    assert files[number] in reason
    assert reason in found.facts(["in"])["files left out"]


def test_a_part_that_is_gone_is_skipped_with_kept_sums_too(files, tmp_path):
    spoil(files[2], "gone")
    found = evaluate_parts(files, "y", folder=tmp_path / "sums", skip_corrupt=True)
    assert (found.sums.rows, len(found.skipped)) == (N - LENGTH, 1)


def test_a_part_without_any_label_adds_nothing(files, tmp_path):
    table()[:LENGTH].with_columns(y=pl.lit(None, pl.String)).write_parquet(files[2])
    for _ in range(2):  # read, and restored
        found = evaluate_parts(files, "y", drop_unlabelled=True, folder=tmp_path / "sums")
        assert (found.sums.rows, found.sums.unlabelled) == (N - LENGTH, LENGTH)


def test_no_part_can_be_used(files):
    for path in files:
        spoil(path, "cut off")
    with pytest.raises(DataError, match="got 5, and skipped all"):
        evaluate_parts(files, "y", skip_corrupt=True)


def test_other_columns_are_not_read(files):
    """Not even if they are of a type that is refused elsewhere."""
    for number, part in enumerate(table().iter_slices(LENGTH)):
        part.with_columns(features=pl.lit(b"\x00")).write_parquet(files[number])
    found = evaluate_parts(files, "y", columns=["prob_a", "prob_b", "prob_c"], classes=["a", "b", "c"])
    assert found.sums.rows == N
