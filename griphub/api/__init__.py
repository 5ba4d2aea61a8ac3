"""HTTP API of the hub: server, requests, answers.

    server               connections, framing, limits (``server_limits``) and deadlines (``connection_progress``)
    head_memory          heads of publishers that repeat theirs; ``publish_plan`` carries out their requests
    body_accounts        bytes of bodies in memory, of all and by owner
    body_buffer          pieces of a body
    request              requests and answers
    application          the part for a request, and the caller's rights
    context              objects and figures that all parts share
    problem              refusals (RFC 9457)
    refusals             pace of a caller's refusals
    query                parameters and headers
    json_document        JSON of requests
    topics, topic_body   topics and their settings
    publishing           one commit for a request; ``publish_body`` and ``cloudevents`` read its events
    body_parser          hub: large bodies, read by the child ``body_process``
    feed                 from a commit to the items of followers; ``commit_times`` is a histogram
    reading              places and ranges of requests that read
    follow               replay and live as one sequence; ``websockets`` over a WebSocket
    watch                events, progress and resync
    soft_watch           the same of soft topics, by ``soft_pages``; ``soft_feed`` has their windows at work,
                         ``soft_query`` their parameters, ``soft_problems`` their refusals
    ingest               lines of their sources
    socket_events        openings and ends of WebSockets
    turns                one piece of work in each turn of the loop, owners in turns
    keys, snapshots      values of keys, and all of them at a version
    subscriptions        standing requests by callback; ``subscription_body`` reads and writes their JSON,
                         ``subscription_feed`` passes events to the sender, and its reports to the store
    mailboxes            commands and polls; ``mailbox_feed`` gives them events, ``mailbox_channel`` holds them
    pubsub_requests      push API: the part for a request, ``pubsub_topics``, ``pubsub_subscriptions`` and
                         ``pubsub_messages``; ``pubsub_body`` reads bodies, ``pubsub_status`` writes refusals
    pubsub_feed          its subscriptions at work; ``backlog_saver`` stores their states, ``pull_channels`` holds pulls
    pubsub_figures       their figures; ``backlog_counts`` counts unread events, ``push_stats`` sends statistics
    push_part            all objects of the push API
    push_identity        keys of tokens and signatures; ``identity_keys`` has the file
    metrics              figures for Prometheus, health
    openapi              description of the API; ``openapi_schemas`` has the bodies, ``openapi_parameters`` parameters

Imports: ``gripproxy.grip``, ``config``, ``process``, ``http1``; all rooms of the hub but ``client``.
"""
