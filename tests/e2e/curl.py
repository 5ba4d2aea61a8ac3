"""What the documents use of curl, for machines without it.

curl [-sNi] [-X METHOD] [-d DATA] [-H HEADER] [-o FILE] [-w %{http_code}] URL
"""

from __future__ import annotations

import argparse
import sys
import urllib.error
import urllib.request


def main() -> int:
    """Do one request, writing the body as it arrives; returns the exit status."""
    parser = argparse.ArgumentParser(prog="curl")
    parser.add_argument("url")
    parser.add_argument("-d", "--data")
    parser.add_argument("-X", "--request")
    parser.add_argument("-o", "--output")
    parser.add_argument("-w", "--write-out", choices=[r"%{http_code}\n"])
    parser.add_argument("-H", "--header", action="append", default=[])
    parser.add_argument("-s", "--silent", action="store_true")
    parser.add_argument("-N", "--no-buffer", action="store_true")
    parser.add_argument("-i", "--include", action="store_true")
    # As with curl, single letters may stand together: -sN.
    options = parser.parse_args()
    headers = dict(header.split(": ", 1) for header in options.header)
    request = urllib.request.Request(
        options.url, options.data and options.data.encode(), headers, method=options.request
    )
    try:
        response = urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as error:
        response = error
    with response:
        if options.include:
            print(f"HTTP/1.1 {response.status} {response.reason}\n{response.headers}", end="", flush=True)
        sink = open(options.output, "wb") if options.output else sys.stdout.buffer  # noqa: SIM115
        while data := response.read1():
            sink.write(data)
            sink.flush()
        if options.write_out:
            print(response.status, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
