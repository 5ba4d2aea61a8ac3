"""The GRIP protocol, sans-I/O: no socket, no clock, no event loop, no logging."""
