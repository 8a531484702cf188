"""
Why is this visit still open? Its events on a driver, in words and as a picture.

Run it with `python -m examples.open_visit`; it needs no Spark.
"""

from examples.visits import View, visits
from sessionkit.testing import at, explain_session
from sessionkit.testing.explain import Explanation

__all__ = ["explained"]

VIEWS = {
    "10:00": View("/", 5.0),
    "10:12": View("/shoes", 40.0),
    "10:05": View("/hats", 7.0),
    "11:05": View("/cart", 20.0),
    "10:20": View("/scarves", 3.0),
    "11:25": View("/thanks", 2.0),
}


def explained() -> Explanation:
    """Return what each view of ann does to her visit, in the order in which the views arrived."""
    return explain_session(visits, "ann", [(at(time), view) for time, view in VIEWS.items()])


if __name__ == "__main__":
    print(explained())
