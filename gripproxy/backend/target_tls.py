"""TLS contexts for connections to targets (docs/grip.md §1.4)."""

from __future__ import annotations

import errno
import os
import ssl

from gripproxy.routing.route import Target

__all__ = ["target_context"]


def target_context(target: Target) -> ssl.SSLContext:
    """Return the TLS context of a target: verified unless ``insecure``, with its client certificate if it has one.

    Args:
        target: A target with TLS.

    Raises:
        OSError: A file of the client certificate cannot be read, or is no regular file: the operator's fault.
        ssl.SSLError: Certificate or key is invalid: the operator's fault.
    """
    context = ssl.create_default_context()
    if target.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if target.client_cert is not None:
        for path in filter(None, (target.client_cert, target.client_key)):
            if os.path.exists(path) and not os.path.isfile(path):
                # OpenSSL would wait for the writer of a FIFO, which would block the worker.
                raise OSError(errno.EINVAL, "must be a regular file", path)
        context.load_cert_chain(target.client_cert, target.client_key)
    return context
