"""Sender of callbacks: which request of which subscription is next, and its outcome. Sans-I/O: time is an argument.

    callback          URLs of callbacks
    address_policy    addresses that they may lead to
    challenge         confirmation of a callback before its first event
    consent           consent of a receiver before its first push, and to their rate
    signing_keys      keys of pushes
    signature         signatures of Standard Webhooks
    failure_class     outcome of a request, as far as the owner may know it
    pauses            pauses between attempts
    window            next events of a subscription, in memory
    position          progress of a subscription, written lazily
    delivery_states   states of a delivery and their transitions
    delivery_actions  orders to the caller of a delivery, and its bounds
    delivery          delivery of one subscription: requests, pauses, rest, position
    host_shares       places for requests, by owner and host

Imports: ``gripproxy.grip``.
"""
