from griphub.api.commit_times import CommitTimes


def test_buckets_count_all_times_up_to_their_bound() -> None:
    times = CommitTimes()
    for seconds in (0.0004, 0.0005, 0.0006, 0.3, 60.0):
        times.add(seconds)
    buckets = dict(times.buckets())
    assert buckets["0.0005"] == 2
    assert buckets["0.001"] == 3
    assert buckets["0.2"] == 3
    assert buckets["0.5"] == 4
    assert buckets["5.0"] == 4
    assert buckets["+Inf"] == 5
    assert times.sum == 0.0004 + 0.0005 + 0.0006 + 0.3 + 60.0
