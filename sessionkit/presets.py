"""
The sessions of well-known analytics products, as `SessionRules`.

    from sessionkit import presets

    timeout = presets.universal_analytics(zone="Europe/Berlin", campaign="campaign")
    longer = attrs.evolve(timeout, gap="1 hour")

A preset is a value like any other rules: each field may be changed. The sources say what a product
does by itself; a project may have other settings. What happens exactly one gap after an event is
`gap_inclusive`: each docstring says it where the product's own code does. Where no source says it,
as for Google's products, that event still belongs to the session, as in Spark.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, Literal

import pyarrow.compute as pc

from sessionkit import aggregates as agg
from sessionkit._instants import Duration, duration
from sessionkit.aggregates import Aggregate, Condition
from sessionkit.timeouts import SessionRules

__all__ = [
    "amplitude",
    "ga4",
    "ga4_engaged",
    "ga4_is_engaged",
    "posthog",
    "segment",
    "snowplow",
    "universal_analytics",
]

HALF_HOUR: Final = timedelta(minutes=30)
TEN_SECONDS: Final = timedelta(seconds=10)
TWO_VIEWS: Final = 2


def ga4(gap: Duration = HALF_HOUR) -> SessionRules:
    """
    Return the sessions of Google Analytics 4: over after 30 minutes of inactivity, and only then.

    Unlike in Universal Analytics, neither midnight nor a campaign ends one. See `ga4_engaged`.

    Source: https://support.google.com/analytics/answer/12798876

    Args:
        gap: GA4 lets you set from 5 minutes to 7 hours and 55 minutes.

    Raises:
        SpecError: The gap can't be one.
    """
    return SessionRules(gap)


def ga4_engaged(
    *,
    page_view: Condition,
    key_event: Condition | None = None,
    longer_than: Duration = TEN_SECONDS,
) -> Aggregate:
    """
    Return whether a session is engaged, as an aggregate: a bool.

    It is if it lasts longer than 10 seconds, has a key event, or has at least two page or screen
    views. How long it lasts is the time from its first to its last event; GA4 itself measures on
    the device, where it also knows how long the last page was looked at.

    Source: https://support.google.com/analytics/answer/12798876

    Args:
        page_view: Which events are page views or screen views.
        key_event: Which events are key events; None where there are none.
        longer_than: GA4 lets you set from 10 to 60 seconds.

    Raises:
        SpecError: A value can't work; the message says what to change.
    """
    parts = {"lasted": agg.duration(), "page_views": agg.count(where=page_view)}
    engaged = pc.field("lasted") > duration(longer_than, "longer_than")
    engaged |= pc.field("page_views") >= TWO_VIEWS
    if key_event is not None:
        parts["key_events"] = agg.count(where=key_event)
        engaged |= pc.field("key_events") > 0
    return agg.holds(engaged, **parts)


def ga4_is_engaged(
    lasted: timedelta,
    *,
    page_views: int,
    key_events: int = 0,
    longer_than: Duration = TEN_SECONDS,
) -> bool:
    """
    Return whether a session is engaged, for a `finish` of your own; see `ga4_engaged`.

    Args:
        lasted: The time from its first to its last event. With a fixed gap, it's
            `session.end - session.start - gap`.
        page_views: How many page or screen views it has.
        key_events: How many key events it has.
        longer_than: The time that it must exceed.

    Raises:
        SpecError: `longer_than` isn't a duration.
    """
    is_long = lasted > duration(longer_than, "longer_than")
    return is_long or page_views >= TWO_VIEWS or key_events > 0


def universal_analytics(
    *, zone: str, campaign: str | Sequence[str] = (), gap: Duration = HALF_HOUR
) -> SessionRules:
    """
    Return the sessions of Universal Analytics, Google's product before GA4.

    One is over after 30 minutes of inactivity, at midnight, and when the campaign changes. With a
    campaign, the spec needs `order="event_time"`.

    Sources: https://support.google.com/analytics/answer/2731565 (sessions),
    https://support.google.com/analytics/answer/2795871 (the limits of the gap)

    Args:
        zone: The time zone of the view, such as `"Europe/Berlin"`.
        campaign: The fields of the event that say where the user came from, such as the campaign,
            its source and its medium. A null says nothing.
        gap: Universal Analytics let you set from one minute to 4 hours.

    Raises:
        SpecError: A value can't work; the message says what to change.
    """
    return SessionRules(gap, midnight=zone, changes_of=campaign)


def posthog(gap: Duration = HALF_HOUR) -> SessionRules:
    """
    Return the sessions of PostHog: over after 30 minutes of inactivity, and after 24 hours.

    An event exactly at either limit belongs to the session: posthog-js compares with `>`. The spec
    needs `order="event_time"`.
    PostHog doesn't extend a session by what no user did; say which events those are with `extends`.

    Sources: https://posthog.com/manual/sessions, and `packages/browser/src/sessionid.ts` in
    https://github.com/PostHog/posthog-js

    Args:
        gap: PostHog lets you set from one minute to 10 hours (`session_idle_timeout_seconds`). The
            24 hours are fixed there.

    Raises:
        SpecError: The gap can't be one.
    """
    return SessionRules(gap, max_duration="24 hours")


def segment(gap: Duration = HALF_HOUR) -> SessionRules:
    """
    Return the sessions of page views in the dbt package for Segment: over after 30 minutes.

    A page view exactly 30 minutes after the last one belongs to the session: the package compares
    with `<=`, though its `docs.md` says "30 minutes or more". It compares whole seconds, sessionkit
    microseconds.

    Source: `models/sessionization/segment_web_page_views__sessionized.sql` in
    https://github.com/dbt-labs/segment

    Args:
        gap: The variable `segment_inactivity_cutoff` of the package.

    Raises:
        SpecError: The gap can't be one.
    """
    return SessionRules(gap)


def snowplow(gap: Duration = HALF_HOUR) -> SessionRules:
    """
    Return the sessions of Snowplow's web trackers: over after 30 minutes of inactivity.

    An event exactly 30 minutes after the last one starts a new session: the stored session has
    expired by then, in local storage (`expires > now` keeps it) as in a cookie. Only where a page
    allows neither, the tracker compares with `>`.

    Sources: https://docs.snowplow.io/docs/sources/web-trackers/tracking-events/session/, and
    `libraries/browser-tracker-core/src/helpers/storage.ts` in
    https://github.com/snowplow/snowplow-javascript-tracker

    Args:
        gap: The trackers let you set it (`sessionCookieTimeout`).

    Raises:
        SpecError: The gap can't be one.
    """
    return SessionRules(gap, gap_inclusive=False)


def amplitude(
    platform: Literal["web", "mobile"] = "web", *, gap: Duration | None = None
) -> SessionRules:
    """
    Return the sessions of Amplitude: over after 30 minutes of inactivity, on a mobile after 5.

    On a mobile, Amplitude ends a session only while the app is in the background. Events alone
    don't tell that, so here the time between them decides.

    An event exactly one gap after the last one belongs to the session on the web, where the SDK
    starts a new one if the time between them `> sessionTimeout`; on a mobile it starts a new one,
    since there the SDKs go on with a session if that time `< minTimeBetweenSessionsMillis`.

    Sources: https://amplitude.com/docs/data/sources/instrument-track-sessions,
    `packages/analytics-core/src/session.ts` in https://github.com/amplitude/Amplitude-TypeScript,
    and `android/src/main/java/com/amplitude/android/Timeline.kt` in
    https://github.com/amplitude/Amplitude-Kotlin

    Args:
        platform: Where the events come from.
        gap: Amplitude lets you set it (`sessionTimeout` on the web,
            `minTimeBetweenSessionsMillis` on a mobile).

    Raises:
        SpecError: The gap can't be one.
    """
    on_web = platform == "web"
    usual = HALF_HOUR if on_web else timedelta(minutes=5)
    return SessionRules(usual if gap is None else gap, gap_inclusive=on_web)
