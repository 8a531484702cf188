"""
The sessions of well-known analytics products, as `SessionRules`.

    import attrs

    from sessionkit.addons import presets

    timeout = presets.posthog()
    longer = attrs.evolve(timeout, gap="1 hour")

A preset is a value like any other rules: each field may be changed. The sources say what a product
does by itself; a project may have other settings. What happens exactly one gap after an event is
`gap_inclusive`: each docstring says it where the product's code or documentation does. Where no
source says it, as for Google, that event still belongs to the session, as in Spark. A value that
can't work raises a `SpecError`.

The rules go by the spec's `event_time`. Docstrings say which clock a product goes by where a source
does: the device's, on which an event happened, or the server's, which received it.
"""

from datetime import timedelta
from typing import Final, Literal

import pyarrow.compute as pc

from sessionkit import SessionRules, SpecError
from sessionkit import aggregates as agg
from sessionkit._for_addons import Condition, Duration, duration_of
from sessionkit.aggregates import Aggregate

__all__ = ["amplitude", "ga4", "ga4_engaged", "posthog", "segment", "snowplow", "snowplow_unified"]

HALF_HOUR: Final = timedelta(minutes=30)
TEN_SECONDS: Final = timedelta(seconds=10)
TWO_VIEWS: Final = 2


def ga4(gap: Duration = HALF_HOUR) -> SessionRules:
    """
    Return the sessions of Google Analytics 4: over after 30 minutes of inactivity, and only then.

    Neither midnight nor a campaign ends one. See `ga4_engaged`.

    Source: https://support.google.com/analytics/answer/12798876

    Args:
        gap: GA4 lets you set from 5 minutes to 7 hours and 55 minutes.
    """
    return SessionRules(gap)


def ga4_engaged(
    *, page_view: Condition, key_event: Condition | None = None, longer_than: Duration = TEN_SECONDS
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
    """
    parts = {"lasted": agg.duration(), "page_views": agg.count(where=page_view)}
    engaged = pc.field("lasted") > duration_of(longer_than, "longer_than")
    engaged |= pc.field("page_views") >= TWO_VIEWS
    if key_event is not None:
        parts["key_events"] = agg.count(where=key_event)
        engaged |= pc.field("key_events") > 0
    return agg.holds(engaged, **parts)


def posthog(gap: Duration = HALF_HOUR) -> SessionRules:
    """
    Return the sessions of PostHog: over after 30 minutes of inactivity, and after 24 hours.

    An event exactly at either limit belongs to the session: posthog-js compares with `>`. The spec
    needs `order="event_time"`. posthog-js goes by the device's clock.

    PostHog doesn't extend a session by a read-only event, one that no user caused. With
    `attrs.evolve(posthog(), extends=...)`, neither do these rules, with one difference: a read-only
    event outside any session starts one in PostHog, which a user's event then continues, and is a
    session of its own here. In a spec of functions, a `state_gap` has PostHog's rule; the how-to
    "Cut sessions" shows it. Not covered: PostHog ends an idle session with a user's next event, or,
    on an open page, after 1.1 times the gap. Until then it adds read-only events to it.

    Sources: https://posthog.com/manual/sessions, and `packages/browser/src/sessionid.ts` in
    https://github.com/PostHog/posthog-js

    Args:
        gap: PostHog lets you set from one minute to 10 hours (`session_idle_timeout_seconds`). The
            24 hours are fixed there.
    """
    return SessionRules(gap, max_duration="24 hours")


def segment(gap: Duration = HALF_HOUR) -> SessionRules:
    """
    Return the sessions of page views in the dbt package for Segment: over after 30 minutes.

    A page view exactly 30 minutes after the last one belongs to the session: the package compares
    with `<=`, though its `docs.md` says "30 minutes or more". It compares whole seconds, sessionkit
    microseconds. It goes by Segment's `timestamp`, not by `received_at`.

    Source: `models/sessionization/segment_web_page_views__sessionized.sql` in
    https://github.com/dbt-labs/segment

    Args:
        gap: The variable `segment_inactivity_cutoff` of the package.
    """
    return SessionRules(gap)


def snowplow(gap: Duration = HALF_HOUR) -> SessionRules:
    """
    Return the sessions of Snowplow's web trackers: over after 30 minutes of inactivity.

    An event exactly 30 minutes after the last one starts a new session: the stored session has
    expired by then, in local storage (`expires > now` keeps it) as in a cookie. Only where a page
    allows neither, the tracker compares with `>`. It goes by the device's clock. The sessions that
    Snowplow's dbt package makes of the tracker's are `snowplow_unified`.

    Sources: https://docs.snowplow.io/docs/sources/web-trackers/tracking-events/session/, and
    `libraries/browser-tracker-core/src/helpers/storage.ts` in
    https://github.com/snowplow/snowplow-javascript-tracker

    Args:
        gap: The trackers let you set it (`sessionCookieTimeout`).
    """
    return SessionRules(gap, gap_inclusive=False)


def snowplow_unified(longest: Duration = "3 days") -> SessionRules:
    """
    Return the sessions of Snowplow's dbt package "Unified Digital": those that the tracker named.

    The package groups events by `domain_sessionid`, those of a mobile by their client session's id,
    however far apart they are. So make this field the spec's key. An event more than three days
    after the first one of its id isn't part of the session: the package compares with `<=`. It goes
    by the server's clock, `collector_tstamp`. The spec needs `order="event_time"`.

    The gap is as long as the session may be, so it never ends one before that. `session_end` is
    thus three days after the last event; `last_event_time` is that of the last event. Their
    `absolute_time_in_s` is the last event's second less the first one's: of 2.3 seconds, 2 or 3.

    Not covered: the package drops what comes after the three days. Here it's another session of the
    key: keep the one with the smallest `session_start`. The package also leaves out events without
    an id, repeats of an `event_id`, and what a device sent more than three days after it happened.

    Sources: `macros/base/base_create_snowplow_events_this_run.sql` in
    https://github.com/snowplow/dbt-snowplow-utils, and `dbt_project.yml` and
    `macros/identifiers.sql` in https://github.com/snowplow/dbt-snowplow-unified

    Args:
        longest: The variable `snowplow__max_session_days` of the package.
    """
    return SessionRules(longest, max_duration=longest)


def amplitude(
    platform: Literal["web", "mobile"] = "web", *, gap: Duration | None = None
) -> SessionRules:
    """
    Return the sessions of Amplitude: over after 30 minutes of inactivity, on a mobile after 5.

    On a mobile, Amplitude ends a session only while the app is in the background. Events don't show
    that, so here the time between them decides. The SDKs go by the device's clock.

    An event exactly one gap after the last one belongs to the session on the web, where the SDK
    starts a new one if the time between them `> sessionTimeout`; on a mobile it starts a new one,
    since there the SDKs continue a session if that time `< minTimeBetweenSessionsMillis`.

    Sources: https://amplitude.com/docs/data/sources/instrument-track-sessions,
    `packages/analytics-core/src/session.ts` and, for React Native,
    `packages/analytics-react-native/src/react-native-client.ts` in
    https://github.com/amplitude/Amplitude-TypeScript,
    and `android/src/main/java/com/amplitude/android/Timeline.kt` in
    https://github.com/amplitude/Amplitude-Kotlin

    Args:
        platform: Where the events come from.
        gap: Amplitude lets you set it (`sessionTimeout` on the web,
            `minTimeBetweenSessionsMillis` on a mobile).

    Raises:
        SpecError: The platform is another one.
    """
    usual = {"web": HALF_HOUR, "mobile": timedelta(minutes=5)}
    if platform not in usual:
        found = f"`platform` must be one of {', '.join(map(repr, usual))}, found {platform!r}"
        raise SpecError(found, 'write amplitude("mobile") for events of an app')
    return SessionRules(usual[platform] if gap is None else gap, gap_inclusive=platform == "web")
