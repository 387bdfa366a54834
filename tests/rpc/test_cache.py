from __future__ import annotations

from rpcinspect.rpc.cache import BoundedCache


def test_the_same_key_gives_the_same_object() -> None:
    cache: BoundedCache[bytes, list[int]] = BoundedCache(1000, entry_bytes=1)
    value = [1]
    cache.put(b"a", value, 1)
    assert cache.get(b"a") is value
    assert cache.get(b"b") is None


def test_bounded_in_all_and_for_each() -> None:
    cache: BoundedCache[bytes, int] = BoundedCache(1600, entry_bytes=50)
    for i in range(1000):
        cache.put(i.to_bytes(2, "big"), i, 2)
        assert len(cache) <= 1600 // 52
    cache.put(b"x" * 51, 1, 51)
    assert cache.get(b"x" * 51) is None
    assert cache.get((999).to_bytes(2, "big")) == 999
