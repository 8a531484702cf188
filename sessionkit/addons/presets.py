"""
The sessions of well-known analytics products, as `SessionRules`.

    import attrs

    from sessionkit.addons import presets

    timeout = presets.posthog()
    longer = attrs.evolve(timeout, gap="1 hour")

A preset is a value like any other rules: you may change each field. The sources describe the
defaults of a product; a project may have other settings. `gap_inclusive` places an event exactly
one gap after the last one as the product's code or documentation does. If no source says, as for
Google, that event still belongs to the session, as in Spark. An invalid value raises a `SpecError`.

The rules use the spec's `event_time`. Where a source names the product's clock, so does the
docstring: the device's, on which an event happens, or the server's, which receives it.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, Literal

from sessionkit import SessionRules, SpecError
from sessionkit import aggregates as agg
from sessionkit._for_addons import Condition, Duration, duration_of, explains
from sessionkit.aggregates import Aggregate

__all__ = ["amplitude", "ga4", "ga4_engaged", "posthog", "segment", "snowplow", "snowplow_unified"]

HALF_HOUR: Final = timedelta(minutes=30)
TEN_SECONDS: Final = timedelta(seconds=10)
TWO_VIEWS: Final = 2


@explains
def ga4(gap: Duration = HALF_HOUR) -> SessionRules:
    """
    Return the rules of Google Analytics 4: a session ends after 30 minutes of inactivity.

    An event exactly one gap after the last one belongs to the session, as by default in
    `SessionRules`. Neither midnight nor a campaign ends a session. See `ga4_engaged`.

    Source: https://support.google.com/analytics/answer/12798876

    Args:
        gap: The gap. GA4 lets you set from 5 minutes to 7 hours and 55 minutes; here any positive
            duration is allowed.
    """
    return SessionRules(gap)


@explains
def ga4_engaged(
    *, page_view: Condition, key_event: Condition | None = None, longer_than: Duration = TEN_SECONDS
) -> Aggregate:
    """
    Return a bool aggregate: whether Google Analytics 4 calls a session engaged.

    An engaged session lasts longer than 10 seconds, has a key event, or has at least two page or
    screen views. Its length is the time from its first to its last event; GA4 itself measures on
    the device, which also knows how long the user looked at the last page.

    Source: https://support.google.com/analytics/answer/12798876

    Args:
        page_view: The condition of page views and screen views: an expression over the fields, or
            the name of a bool field.
        key_event: The condition of key events, likewise; None if there are none.
        longer_than: The length that an engaged session exceeds. GA4 lets you set from 10 to 60
            seconds.
    """
    engaged = agg.duration() > duration_of(longer_than, "longer_than")
    engaged |= agg.count(where=page_view) >= TWO_VIEWS
    return engaged if key_event is None else engaged | (agg.count(where=key_event) > 0)


@explains
def posthog(
    gap: Duration = HALF_HOUR, *, opens_with: Condition | Callable[[Any], bool] | None = None
) -> SessionRules:
    """
    Return the rules of PostHog: a session ends after 30 minutes of inactivity, or after 24 hours.

    An event exactly at either limit belongs to the session: posthog-js compares with `>`. The spec
    needs `order="event_time"`. posthog-js uses the device's clock.

    In PostHog, a read-only event, which no user caused, doesn't extend a session. The same holds
    here under `attrs.evolve(posthog(), extends=...)`, with one difference: if no session is open, a
    read-only event opens one. In PostHog, the user's next event continues that session; here it
    starts another one. In a spec of functions, `state_gap` can express PostHog's rule; see the
    how-to "Cut sessions". Not covered: PostHog ends an idle session at the user's next event or, on
    an open page, after 1.1 times the gap. Until then it adds read-only events to it.

    Sources: https://posthog.com/manual/sessions, `packages/browser/src/sessionid.ts` in
    https://github.com/PostHog/posthog-js, and `PostHog/PostHogSessionManager.swift` in
    https://github.com/PostHog/posthog-ios

    Args:
        gap: The gap. PostHog lets you set from one minute to 10 hours
            (`session_idle_timeout_seconds`). The 24 hours are fixed.
        opens_with: The condition of events that may open a session, such as a user's; see
            `SessionRules`. In the iOS SDK, a read-only event belongs to the session that is open,
            or to none. In posthog-js it opens one, so leave this out.
    """
    return SessionRules(gap, max_duration="24 hours", opens_with=opens_with)


@explains
def segment(gap: Duration = HALF_HOUR) -> SessionRules:
    """
    Return the rules of Segment's dbt package: a session ends 30 minutes after its last page view.

    A page view exactly 30 minutes after the last one belongs to the session: the package compares
    with `<=`, though its `docs.md` says "30 minutes or more". It compares whole seconds, sessionkit
    microseconds. It uses Segment's `timestamp`, not `received_at`.

    Source: `models/sessionization/segment_web_page_views__sessionized.sql` in
    https://github.com/dbt-labs/segment

    Args:
        gap: The gap: the variable `segment_inactivity_cutoff` of the package.
    """
    return SessionRules(gap)


@explains
def snowplow(gap: Duration = HALF_HOUR) -> SessionRules:
    """
    Return the rules of Snowplow's web trackers: a session ends after 30 minutes of inactivity.

    An event exactly 30 minutes after the last one starts a new session: the stored session has
    expired by then, in local storage (`expires > now` keeps it) and in a cookie. Only on a page
    that allows neither, the tracker compares with `>`. It uses the device's clock. For the sessions
    of Snowplow's dbt package, see `snowplow_unified`.

    Sources: https://docs.snowplow.io/docs/sources/web-trackers/tracking-events/session/, and
    `libraries/browser-tracker-core/src/helpers/storage.ts` in
    https://github.com/snowplow/snowplow-javascript-tracker

    Args:
        gap: The gap. The trackers let you set it (`sessionCookieTimeout`).
    """
    return SessionRules(gap, gap_inclusive=False)


@explains
def snowplow_unified(longest: Duration = "3 days") -> SessionRules:
    """
    Return the rules of Snowplow's dbt package "Unified Digital": sessions by the tracker's id.

    The package groups events by `domain_sessionid`, and mobile events by the id of their client
    session, however far apart they are. So make this field the spec's key. An event more than three
    days after the first one of its id isn't part of the session: the package compares with `<=`. It
    uses the server's clock, `collector_tstamp`. The spec needs `order="event_time"`.

    The gap is as long as a session may be, so it never ends a session earlier. `session_end` is
    thus three days after `last_event_time`. The package's `absolute_time_in_s` is the last event's
    second less the first one's: for 2.3 seconds, 2 or 3.

    Not covered: the package drops events after the three days. Here they are another session of the
    key: keep the session with the smallest `session_start`. The package also drops events without
    an id, repeats of an `event_id`, and events that a device sent more than three days late.

    Sources: `macros/base/base_create_snowplow_events_this_run.sql` in
    https://github.com/snowplow/dbt-snowplow-utils, and `dbt_project.yml` and
    `macros/identifiers.sql` in https://github.com/snowplow/dbt-snowplow-unified

    Args:
        longest: How long after its first event a session takes events: the variable
            `snowplow__max_session_days` of the package.
    """
    return SessionRules(longest, max_duration=longest)


@explains
def amplitude(
    platform: Literal["web", "mobile"] = "web", *, gap: Duration | None = None
) -> SessionRules:
    """
    Return the rules of Amplitude: a session ends after 30 idle minutes, on a mobile after 5.

    On a mobile, Amplitude ends a session only while the app is in the background. Events don't show
    that, so here the time between them decides. The SDKs use the device's clock.

    On the web, an event exactly one gap after the last one belongs to the session: the SDK starts a
    new one if the time between them `> sessionTimeout`. On a mobile it starts a new session: the
    SDKs continue a session if that time `< minTimeBetweenSessionsMillis`.

    Sources: https://amplitude.com/docs/data/sources/instrument-track-sessions,
    `packages/analytics-core/src/session.ts` and, for React Native,
    `packages/analytics-react-native/src/react-native-client.ts` in
    https://github.com/amplitude/Amplitude-TypeScript,
    and `android/src/main/java/com/amplitude/android/Timeline.kt` in
    https://github.com/amplitude/Amplitude-Kotlin

    Args:
        platform: Where the events come from: `"web"` or `"mobile"`.
        gap: The gap; by default 30 minutes on the web and 5 on a mobile. Amplitude lets you set it
            (`sessionTimeout` on the web, `minTimeBetweenSessionsMillis` on a mobile).

    Raises:
        SpecError: The platform is unknown.
    """
    gaps = {"web": HALF_HOUR, "mobile": timedelta(minutes=5)}
    asked: object = platform
    if not isinstance(asked, str) or asked not in gaps:
        found = f"`platform` must be one of {', '.join(map(repr, gaps))}, found {platform!r}"
        raise SpecError(found, 'write amplitude("mobile") for events of an app')
    return SessionRules(gaps[platform] if gap is None else gap, gap_inclusive=platform == "web")
