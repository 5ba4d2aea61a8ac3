"""Windows of soft topics: events in memory whose truth is in another store. Sans-I/O, and nothing is persisted.

Ingesters append events with the source's own versions, in any order, and give progress for ranges of keys, which they
may cut as they like. An event is held back until the progress of its piece passes it; a range is released up to the
least progress of its pieces, so that versions that touch several of them stay whole. Every loss has a sentence: places
below the floor, of another epoch or above the progress are refused; followers that cannot be served any more resync.

    bounds          bounds, and the error of a limit
    span            half-open ranges of keys
    soft_event      one event
    positions       positions as clients name them, and stamps
    payload         bounds of JSON, base64
    ingest_lines    lines of a request
    pieces          progress of elementary ranges
    event_blocks    events by key and version
    followed_ranges ranges with followers, and how far each was released
    batch           check of a request as a whole
    event_texts     JSON of events
    release_items   items for the followers of a channel
    decisions       fates of requests, releases, resyncs
    window          one topic
    window_table    all topics

Imports: ``gripproxy.grip``, ``griphub.topics``.
"""
