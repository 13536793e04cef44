"""Takes the latency behind the right one.

rejected by: test_percentile
message: how many latencies are not above it?
"""


def percentile(latencies, share):
    return sorted(latencies)[min(len(latencies) - 1, int(share * len(latencies)))]
