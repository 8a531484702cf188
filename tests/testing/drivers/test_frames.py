"""Frames of a driver have the values of Spark."""

from datetime import time, timedelta
from enum import Enum
from typing import Annotated, Any
from uuid import UUID

import attrs
from pyspark.sql import SparkSession

from sessionkit import Functions, SessionSpec
from sessionkit.testing import SessionDriver, at
from tests.support.pages import BLOCK, ROOT, run_blocks

PAGE = ROOT / "docs" / "how-to" / "test-a-spec.md"


class Device(Enum):
    DESK = "desk"


@attrs.frozen
class Item:
    sku: str
    device: Device


@attrs.frozen
class Told:
    """A field of each kind whose value in Python isn't Spark's."""

    device: Device
    maybe: Device | None
    visit: UUID
    wait: Annotated[timedelta, "seconds"]
    opens: time
    items: list[Item]
    pair: tuple[Device, int]
    waits: dict[Device, Annotated[timedelta, "seconds"]]


def test_a_frame_has_the_values_of_spark() -> None:
    """Also inside of others, and of keys; an object is a tuple."""

    def create(key: Any, event: Told) -> Told:
        return event

    def update(state: Told, event: Told) -> Told:
        return event

    spec: Any = SessionSpec(
        keys={"visitor": UUID, "shift": time},
        event_time="ts",
        logic=Functions(event=Told, state=Told, create=create, update=update),
        gap="1 hour",
        watermark_delay="0 minutes",
        order="event_time",
    )
    desk, wait = Device.DESK, timedelta(milliseconds=1_500)
    told = Told(desk, None, UUID(int=9), wait, time(9), [Item("a", desk)], (desk, 1), {desk: wait})
    driver = SessionDriver(spec)
    driver.add((UUID(int=10), time(8)), at("10:00"), told)
    driver.run_batch()
    driver.advance_watermark_to(at("12:00"))
    driver.run_batch()

    (row,) = driver.take_frame().to_dict("records")

    own = {"session_id", "session_start", "session_end", "last_event_time"}
    assert {
        "visitor": f"{UUID(int=10)}",
        "shift": 28_800_000_000,
        "device": "desk",
        "maybe": None,
        "visit": f"{UUID(int=9)}",
        "wait": 1.5,
        "opens": 32_400_000_000,
        "items": [("a", "desk")],
        "pair": ("desk", 1),
        "waits": {"desk": 1.5},
    } == {name: value for name, value in row.items() if name not in own}


def test_the_comparison_of_the_page_holds(spark: SparkSession) -> None:
    """A batch on Spark has the rows of a driver's frame."""
    text = PAGE.read_text(encoding="utf-8")
    (block,) = (block for block in BLOCK.findall(text) if "assert_df_equality" in block)
    compared = block.partition("\n")[2].replace("def test_", "def compare_")
    page = f"{text.partition('## Move the clocks')[0]}\n```python\n{compared}```\n"

    run_blocks(PAGE, page)["compare_spark_gives_the_rows_of_the_driver"](spark)
