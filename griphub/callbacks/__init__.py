"""Callbacks: requests to the URLs that subscribers give, and the process that decides and makes them.

    push_event        event to be delivered, with its text
    courier           one subscription in the sender
    listeners         subscriptions that take events as they are stored; sans-I/O
    lane              places for one kind of requests, and their pace; sans-I/O
    dispatcher        carries out the orders of all deliveries; sans-I/O
    own_addresses     addresses of this machine
    outcome           outcome of a request
    request_limits    bounds of requests
    resolutions       addresses of hosts, kept for some seconds; sans-I/O
    resolver          resolves names in threads, so that slow ones hold up those of their owner only
    address_turns     turns of requests at one address, of all names that lead there; sans-I/O
    idle_connections  connections kept for the next request; sans-I/O
    connections       connections to pinned addresses: opened, reused, closed
    request           one request, from the name of its host to its outcome
    client            all requests
    push_desk         push API: order of deliveries of all its subscriptions, sans-I/O; ``desk_subscription`` is one of
                      them, ``pushed_event`` one message, ``event_source`` the store
    push_port         their requests; ``desk_port`` has the calls between both

Imports: ``gripproxy.process``, ``gripproxy.http1``, ``gripproxy.routing``, ``gripproxy.backend``, ``griphub.store``,
``griphub.topics``, ``griphub.sender``.
"""
