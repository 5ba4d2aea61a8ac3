"""Client of a hub for asyncio programs, and for the command line. No module of the server is imported.

    event        events to be published, and receipts
    errors       exceptions, and problem documents
    retry        pauses between attempts
    batch        contents of the next request, and its fate
    connection   HTTP: a request and its answer, or a stream
    publisher    events of one topic, in order, each stored once
    received     events and reports as a hub gives them
    event_stream parser of server-sent events
    follower     events of a topic as they are stored, over as many connections as it takes
    history      stored events, page by page
    mailbox      events of many topics and keys, over one poll after the other
    snapshot     the last event of each key at a version
    subscription_state   decisions of a subscriber with pushes and polls: its ``subscription_actions``,
                 ``subscription_places`` and ``countdown``
    subscriber           events of a topic by callback and by polls: its ``subscription_requests``,
                 ``subscription_standing``, ``subscriber_counts``, ``subscriber_file`` and ``pending_events``
    push_receiver        requests to its callback: signatures (``webhook_signature``), challenges, bounds
    push_server          a server for it on a port of its own
    mailbox_state        decisions of a mailbox's subscriber: its ``mailbox_actions``, ``mailbox_answers``,
                 ``mailbox_places``, ``mailbox_history`` and ``attempts``
    watcher              changes of a range of keys, whole transactions in order: its ``watch_messages``
    watch_state          decisions of a watcher: its ``watch_actions``, ``watch_lines``, ``watch_sequence`` and
                 ``watch_silence``
    source_snapshot      snapshots of the source of a soft topic, which the application reads
    snapshot_cache       values of ranges, read together at one version or not at all
    snapshot_cache_state feeds of a cache, handovers and bounds: its ``cached_value``
    region               knowledge of a ``key_range`` at an interval of versions, kept in a ``version_tree``
    stitched             reads over regions of any number of caches

``batch``, ``event``, ``event_stream``, ``received``, ``retry`` and the states are sans-I/O; ``connection``,
``subscriber``, ``push_server`` and ``push_receiver`` need aiohttp.
"""
