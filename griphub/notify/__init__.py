"""The way to the handler: items of the hub, and the channels that clients hold.

    outbox          items that wait, and the channels that missed some
    control_client  items in batches over the handler's control port, acknowledged and in order
    http_response   responses of the control port
    held_channels   channels that have subscribers

Imports: ``gripproxy.grip``, ``process``; ``griphub.store``, ``topics``.
"""
