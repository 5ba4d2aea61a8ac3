"""gripproxy.process.runner_messages: typed messages, one line each."""

from __future__ import annotations

import pytest

from gripproxy.process.runner_messages import (
    Logged,
    PrepareRoutes,
    Retire,
    RunnerMessage,
    UseRoutes,
    decode_message,
    encode_message,
)


class TestMessages:
    @pytest.mark.parametrize(
        "message", [Retire(60.0, 0.1), PrepareRoutes(3), UseRoutes(2**40), Logged("error", "e", "ü\n")]
    )
    def test_a_message_is_one_line(self, message: RunnerMessage) -> None:
        line = encode_message(message)
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        assert decode_message(line[:-1]) == message

    @pytest.mark.parametrize(
        "line",
        [b"", b"x", b"60.0 0.5", b"[]", b"{}", b'{"type": "Retire"}', b'{"type": "Handover"}', b'{"type": ["x"]}'],
    )
    def test_an_unknown_message_is_an_error(self, line: bytes) -> None:
        with pytest.raises(ValueError, match="unknown message from the runner"):
            decode_message(line)
