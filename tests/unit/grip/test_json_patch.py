"""JSON Patch on held bodies: docs/grip.md §5.3, RFC 6902, and the bounds on what a patch may cost."""

from __future__ import annotations

import copy
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gripproxy.grip.json_patch import OPS_MAX, PATCH_MAX, WORK_MAX, Patch, PatchLimit


def apply_patch(body: bytes, ops: list[Any]) -> bytes | None:
    """Patch one body with a patch that is used once."""
    return Patch(ops).apply(body)


def op(name: str, path: str = "/b", **more: Any) -> dict[str, Any]:
    return {"op": name, "path": path, **more}


class TestOperations:
    BODY = b'{"a":1,"l":[1,2,3],"o":{"x":"y"}}'

    @pytest.mark.parametrize(
        ("ops", "result"),
        [
            ([], b'{"a":1,"l":[1,2,3],"o":{"x":"y"}}'),
            ([op("add", "/b", value=2)], b'{"a":1,"l":[1,2,3],"o":{"x":"y"},"b":2}'),
            ([op("add", "/a", value=None)], b'{"a":null,"l":[1,2,3],"o":{"x":"y"}}'),
            ([op("add", "/l/0", value=0)], b'{"a":1,"l":[0,1,2,3],"o":{"x":"y"}}'),
            ([op("add", "/l/-", value=[4])], b'{"a":1,"l":[1,2,3,[4]],"o":{"x":"y"}}'),
            ([op("add", "", value=["new"])], b'["new"]'),
            ([op("remove", "/a"), op("remove", "/l/1")], b'{"l":[1,3],"o":{"x":"y"}}'),
            ([op("replace", "/o/x", value={"z": True})], b'{"a":1,"l":[1,2,3],"o":{"x":{"z":true}}}'),
            ([op("move", "/b", **{"from": "/a"})], b'{"l":[1,2,3],"o":{"x":"y"},"b":1}'),
            ([op("copy", "/o/l", **{"from": "/l"})], b'{"a":1,"l":[1,2,3],"o":{"x":"y","l":[1,2,3]}}'),
            ([op("test", "/o", value={"x": "y"}), op("remove", "/o")], b'{"a":1,"l":[1,2,3]}'),
        ],
    )
    def test_each(self, ops: list[Any], result: bytes) -> None:
        assert apply_patch(self.BODY, ops) == result

    def test_pointer_escapes(self) -> None:
        assert apply_patch(b'{"a/b":1,"c~d":2}', [op("remove", "/a~1b"), op("replace", "/c~0d", value="\xfc")]) == (
            '{"c~d":"ü"}'.encode()
        )

    def test_observed_exchange(self) -> None:
        """docs/grip.md §13.4."""
        assert apply_patch(b'{"a":1}\n', [op("add", "/b", value=2)]) == b'{"a":1,"b":2}\n'

    @pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
    def test_line_end_is_kept(self, end: bytes) -> None:
        assert apply_patch(b"[ 1, 2 ]" + end, []) == b"[1,2]" + end

    def test_only_one_line_end_is_kept(self) -> None:
        assert apply_patch(b"[]\n\n", []) == b"[]\n"

    @pytest.mark.parametrize("number", [2**63, -(2**63), 2**64 - 1, 0.1, 1e300])
    def test_numbers_survive(self, number: float) -> None:
        assert apply_patch(orjson.dumps([number]), []) == orjson.dumps([number])


class TestFailures:
    @pytest.mark.parametrize("body", [b"", b"text", b"{", b"1", b'"x"', b"null", b"{} x", b'{"\xff":1}', b"[NaN]"])
    def test_body_is_not_json(self, body: bytes) -> None:
        assert apply_patch(body, []) is None

    @pytest.mark.parametrize(
        "bad",
        [
            op("remove", "/zz"),
            op("replace", "/zz", value=1),
            op("add", "/zz/y", value=1),
            op("add", "/l/9", value=1),
            op("add", "/l/01", value=1),
            op("add", "/l/x", value=1),
            op("remove", "/l/-"),
            op("test", "/a", value=2),
            op("test", "/zz", value=None),
            op("move", "/o/x/y", **{"from": "/o"}),
            op("move", "/b", **{"from": "/zz"}),
            op("copy", "/b", **{"from": "/zz"}),
            op("copy", "/b", **{"from": 1}),
            op("copy", "/b"),
            op("move", "/b"),
            op("add", "/b"),
            op("test", "/a"),
            op("replace", "/a"),
            op("add", "b", value=1),
            op("add", 1, value=1),  # type: ignore[arg-type]
            op("add", "/~2", value=1),
            op("append", "/s", value="x"),
            op("zap"),
            op([]),  # type: ignore[arg-type]
            {"op": "add", "value": 1},
            {"path": "/b", "value": 1},
            {},
            [],
            "add",
            None,
            op("add", "", value=5),
            op("add", "/b", value=2**70),
        ],
    )
    def test_operation(self, bad: Any) -> None:
        assert apply_patch(b'{"a":1,"l":[1],"o":{"x":{}},"s":"s"}', [op("add", "/c", value=1), bad]) is None

    def test_patch_is_left_alone(self) -> None:
        """The same patch goes to every held body."""
        ops = [op("add", "/b", value={"x": []}), op("add", "/b/x/-", value=1), op("test", "/b", value={"x": [1]})]
        before = copy.deepcopy(ops)
        for _ in range(2):
            assert apply_patch(b"{}", ops) == b'{"b":{"x":[1]}}'
        assert ops == before


class TestBounds:
    def test_operations(self) -> None:
        ops = [op("add", "/-", value=1)] * OPS_MAX
        assert apply_patch(b"[]", ops) == orjson.dumps([1] * OPS_MAX)
        with pytest.raises(PatchLimit, match="1001 operations"):
            Patch([*ops, op("test", "/0", value=1)])

    def test_bytes(self) -> None:
        value = "x" * (PATCH_MAX - len('/b""'))
        assert apply_patch(b"{}", [op("add", value=value)]) == orjson.dumps({"b": value})
        with pytest.raises(PatchLimit, match="more than 250000 bytes"):
            Patch([op("add", value=value + "x")])

    def test_copies_both_sides(self) -> None:
        """Two steps of pointers and the bytes of the value are charged."""
        text = "x" * (WORK_MAX - 20 - len('""'))
        copying = [op("copy", "/b", **{"from": "/a"})]
        body = orjson.dumps({"a": text})
        assert Patch(copying).apply(body, 2 * WORK_MAX) == orjson.dumps({"a": text, "b": text})
        with pytest.raises(PatchLimit, match="units of work"):
            apply_patch(orjson.dumps({"a": text + "x"}), copying)

    def test_the_result(self) -> None:
        adding = Patch([op("add", value="x" * 100)])
        result = adding.apply(b"{}", 108)
        assert result is not None
        assert len(result) == 108
        with pytest.raises(PatchLimit, match="108 bytes; filter_output_max is 107"):
            adding.apply(b"{}", 107)

    @pytest.mark.parametrize(
        "ops",
        [
            [op("add", "/l/0", value=1)] * OPS_MAX,
            [op("move", "/l/0", **{"from": "/l/49000"})] * OPS_MAX,
            [op("remove", "/l/0")] * OPS_MAX,
            [op("copy", "/c", **{"from": "/l"})] * OPS_MAX,
        ],
        ids=["insert", "move", "remove", "copy"],
    )
    def test_what_is_small_and_costs_much(self, ops: list[Any]) -> None:
        """A thousand operations on an array of 50,000 elements, which is all that a held body has room for."""
        body = b'{"l":[' + b"1," * 49_999 + b"1]}"
        with pytest.raises(PatchLimit, match="units of work"):
            Patch(ops).apply(body)

    def test_a_comparison_costs_what_its_value_has(self) -> None:
        value = [1] * 20_000
        ops = [op("test", "/l", value=value)]
        body = orjson.dumps({"l": value})
        assert apply_patch(body, ops) == body

    def test_doubling_stops_early(self) -> None:
        """Forty operations would make a terabyte of one byte."""
        with pytest.raises(PatchLimit, match="units of work"):
            apply_patch(b'{"a":[1]}', [op("copy", "/a/-", **{"from": "/a"})] * 40)

    @pytest.mark.parametrize("depth", [300, 1_000, 100_000])
    def test_deep_bodies(self, depth: int) -> None:
        body = b'{"a":' * depth + b"1" + b"}" * depth
        for ops in ([], [op("copy", "/b", **{"from": "/a"})], [op("test", "/a", value={})]):
            assert apply_patch(body, ops) is None

    def test_deep_by_patching(self) -> None:
        value: Any = {}
        for _ in range(90):
            value = {"a": value}
        ops = [op("add", "/a" * (91 * i), value=value) for i in range(11)]
        for last in ([], [op("copy", "/b", **{"from": ""})], [op("test", "", value=1)]):
            assert apply_patch(b"{}", [*ops, *last]) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "0", ""]), inner),
    max_leaves=6,
)
POINTER = st.lists(st.sampled_from(["a", "b", "0", "1", "-", "", "~0", "~"]), max_size=3).map(
    lambda parts: "".join("/" + p for p in parts)
)
OP = st.fixed_dictionaries(
    {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]), "path": POINTER},
    optional={"value": JSON, "from": POINTER},
)


class TestFuzz:
    """Nothing may escape."""

    @given(JSON, st.lists(OP | JSON, max_size=5))
    def test_any(self, document: Any, ops: list[Any]) -> None:
        try:
            body = orjson.dumps(document)
        except TypeError:  # an integer JSON cannot carry
            body = b"[]"
        try:
            result = apply_patch(body, ops)
        except PatchLimit:
            return
        if result is not None:
            assert isinstance(orjson.loads(result), dict | list)

    @given(st.binary(max_size=30))
    def test_any_body(self, body: bytes) -> None:
        apply_patch(body, [op("add", "/a", value=1)])
