"""Errors: one tree for all processes, by whose fault it is.

    GripproxyError
    ├── ClientError       the client's fault: its request or its WebSocket breaks a rule or a bound
    │   ├── BadRequest         no HTTP request, or one that is refused (http1)
    │   └── OutboxFull         more WebSocket events than may wait for the backend (grip)
    ├── BackendError      the backend's fault: its response, instruct or control message does, or it cannot be reached
    │   ├── AcceptError        Content-Bytes-Accepted that does not fit the events offered (grip)
    │   ├── BadResponse        no HTTP response, or one that is refused (http1)
    │   ├── Blocked            an address that policy_allow and policy_deny bar (backend)
    │   ├── ControlError       a control message without meaning (grip)
    │   ├── DecodingError      a body that is not in its content coding (http1)
    │   ├── EventError         no WebSocket-over-HTTP events (grip)
    │   ├── InstructError      an instruct without meaning, or beyond a bound (grip)
    │   └── LinkError          a link that is no HTTP address (grip)
    ├── PublisherError    the publisher's fault: its message, request or key
    │   ├── BadJson            a body that is no JSON document (handler.sources)
    │   ├── ItemError          an item that cannot be used, or is beyond a bound (grip)
    │   ├── Malformed          a message of a stats socket that is no event (live)
    │   ├── NoObject           a JSON array where an object is expected (handler.sources)
    │   ├── PatchLimit         a JSON Patch that is too large or too costly (grip)
    │   ├── RequestError       a message on the command socket that is no request (handler.control)
    │   ├── ReservedChannel    an item on a channel that its publisher may not use (handler.dispatch)
    │   ├── _Failed            an operation of a JSON Patch that fails (grip)
    │   └── _Refused           a request to the control port that is refused before its body (handler.control)
    ├── OperatorError     the operator's fault: configuration, routes, certificates, command line, the machine
    │   ├── BindError          an address of the handler that cannot be used (process)
    │   ├── ConfigError        a config file that cannot be used (config)
    │   ├── ForwardedForError  an x_forwarded_for rule without meaning (grip)
    │   ├── KeyProblem         a signing key that cannot be used (grip)
    │   ├── ListenError        a listening socket that cannot be opened (process)
    │   │   └── CertificateError   a certificate that is missing or cannot be used (process)
    │   ├── NotConnected       no stats socket was connected in time (top)
    │   ├── NotRunning         no runner at its admin socket (cli)
    │   ├── PublishError       an item that ``gripproxy publish`` could not publish (cli)
    │   ├── RouteError         a line of the routes file that cannot be used (routing)
    │   ├── StatsSubscriberError   an address of a stats socket that cannot be connected to (stats)
    │   ├── TerminalError      no terminal for the live view (top)
    │   └── _Misuse            options of a ``gripproxy hub`` command that do not fit together (cli)
    ├── InternalError     a fault of gripproxy: one of its processes broke a rule that another relies on
    │   ├── PipeError          a frame of the pipe that cannot be decoded (pipe)
    │   └── UnexpectedEvent    an event that the state of a recovery does not expect (sessions)
    ├── DirectiveError, DirectiveLimit   a template that cannot be filled in (grip)
    ├── FilterError       a filter that failed (grip)
    │   └── FilterLimit        an item that asks too much of a filter (grip)
    ├── FrameError        neither JSON nor a tnetstring (grip)
    ├── ParamsError       a header with a quote that is not closed (grip)
    └── ProtocolError     a WebSocket peer that breaks RFC 6455 or RFC 7692 (grip)

The exceptions at the end are those of codecs that serve several peers: the caller knows whose fault it is. The message
names the value that is wrong and, where it helps, the value that would be right.

spark_stats imports nothing of gripproxy but the subscriber of stats sockets, and has a tree of its own.
"""

from __future__ import annotations

__all__ = ["BackendError", "ClientError", "GripproxyError", "InternalError", "OperatorError", "PublisherError"]


class GripproxyError(Exception):
    """Base of all exceptions of gripproxy and handler."""


class ClientError(GripproxyError):
    """Fault of the client: answered with a 4xx status or a WebSocket close code."""


class BackendError(GripproxyError):
    """Fault of the backend: answered to the client with 502 or a close code, logged for the operator."""


class PublisherError(GripproxyError):
    """Fault of the publisher: answered with a 4xx status or an error condition, counted as refused."""


class OperatorError(GripproxyError):
    """Fault of the operator: reported by one line with the key or option to change, never by a traceback."""


class InternalError(GripproxyError):
    """Fault of gripproxy: the session or connection concerned ends, all others proceed."""
