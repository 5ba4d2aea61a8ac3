"""Topics as their followers see them: texts of events, ranges, channels, the seam of history and live. Sans-I/O.

    names          names that clients choose, and their bounds
    times          times of clients and of the store
    ranges         ranges of keys, in parameters and in names of channels
    range_index    distinct ranges that contain a key
    topic_table    topics in memory; ``subscription_table`` has their subscriptions by callback
    event_text     texts of events, in each representation
    channel_index  channels with followers, and where the chain of each stands
    fanout         items of a commit, one for each channel with followers
    items          items as JSON of the control port
    progress       when each range of watchers gets progress, and stamps of its ids
    leases         versions below the next floor that are being read

Imports: ``gripproxy.grip``, ``griphub.store``.
"""
