"""Bytes of answers."""

from handler.control.http_message import ApiRequest, Response, answer


def test_versions_and_keep_alive() -> None:
    assert answer(200, b"x", http_1_1=False) == (
        b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx"
    )
    assert answer(200, b"x", keep_alive=True) == (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1\r\n\r\nx"
    )


def test_a_response_fits_its_request() -> None:
    response = Response(405, b"no\n", extra=b"Allow: GET\r\n")
    old = ApiRequest(b"POST", b"/", http_1_1=False)
    assert response.to(old) == answer(405, b"no\n", extra=b"Allow: GET\r\n", http_1_1=False)
    head = ApiRequest(b"HEAD", b"/", keep_alive=True)
    assert response.to(head) == answer(405, b"no\n", extra=b"Allow: GET\r\n", keep_alive=True, head=True)
