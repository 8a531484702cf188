"""The example about unique ids: its messages, and the program."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from examples.unique_ids import deliveries, run


def test_orders_come_in_more_messages_than_there_are_orders() -> None:
    """Six hundred orders come in more messages than that; one comes again hours later."""
    hours = list(deliveries())
    names = [name for messages in hours for name, _ in messages]

    assert 600 == len(set(names))
    assert 701 == len(names)
    assert 2 == names.count("0-000")


@pytest.mark.long
def test_the_program_tells_what_each_way_keeps(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program tells what each way keeps, and by which rule ids are forgotten."""
    run(spark, tmp_path)
    shown = capsys.readouterr().out

    assert "701 messages of 600 orders, in 6 files." in shown
    assert "messages kept: 600; orders kept twice: none" in shown
    assert "ids in state after each file: 100, 200, 300, 400, 500, 600" in shown
    assert "messages kept: 601; orders kept twice: 0-000" in shown
    assert "forgets a key when watermark >= `sent` of its first row + 1 hour" in shown
