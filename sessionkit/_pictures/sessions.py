"""Open sessions that show themselves in a notebook."""

from operator import attrgetter

from sessionkit._engine.sessions.view import OpenSession
from sessionkit._pictures.literals import plain_key
from sessionkit._pictures.notebook import as_html
from sessionkit._pictures.timeline import Span, Timeline
from sessionkit.spec.shared import S


class OpenSessions(list[OpenSession[S]]):
    """A list, of which a notebook shows a timeline: a lane for each key, by the first start."""

    def _repr_html_(self) -> str:
        bars = [
            Span(plain_key(one.key), one.start, one.end, is_open=True)
            for one in sorted(self, key=attrgetter("start"))
        ]
        return as_html(Timeline([], bars, {}), "Open sessions", "there are none")
