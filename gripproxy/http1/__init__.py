"""HTTP/1.1 on the wire (RFC 9112), sans-I/O: bytes in, requests and responses out, and back.

Imports ``grip`` only. ``request_parser`` and ``response_parser`` are the one place that knows httptools (llhttp);
they decide where it is permissive: sizes, trailers, contradictory lengths. A message that two parsers could read
differently is refused.

``head_cache`` keeps heads that arrived twice, byte for byte, with the results of parsing and forwarding them;
``header_classes`` sorts header names by their treatment, each name once. ``serializer`` writes responses for
clients, ``content_coding`` decodes bodies of backends.

Bytes enter in pieces of any size. Parsers call their owner per head, body piece and end; one call may carry a whole
message, which is the fast path of both sides.
"""
