"""Whether two samples look as if they came from one distribution: two tests without assumptions.

Both p-values are those of large samples (n = 20 and more each); they were held against tables.
"""

import bisect
import math
from collections import Counter
from collections.abc import Sequence


def mann_whitney(left: Sequence[float], right: Sequence[float]) -> float:
    """The two-sided p-value of the U test: small where one sample tends to be larger. With the
    corrections for ties and for continuity."""
    n, m = len(left), len(right)
    pooled = sorted([*left, *right])
    counts = Counter(pooled)
    ranks = {value: bisect.bisect_left(pooled, value) + (counts[value] + 1) / 2 for value in counts}
    u = sum(ranks[value] for value in left) - n * (n + 1) / 2
    ties = sum(count**3 - count for count in counts.values())
    total = n + m
    variance = n * m / 12 * (total + 1 - ties / (total * (total - 1)))
    if variance == 0:
        return 1.0
    z = max(abs(u - n * m / 2) - 0.5, 0.0) / math.sqrt(variance)
    return math.erfc(z / math.sqrt(2))


def kolmogorov_smirnov(left: Sequence[float], right: Sequence[float]) -> float:
    """The p-value of the two-sample test: small where the distributions differ in any way."""
    n, m = len(left), len(right)
    first, second = sorted(left), sorted(right)
    distance = max(
        abs(bisect.bisect_right(first, value) / n - bisect.bisect_right(second, value) / m)
        for value in (*first, *second)
    )
    size = math.sqrt(n * m / (n + m))
    x = (size + 0.12 + 0.11 / size) * distance
    if x < 0.2:
        return 1.0
    terms = (math.exp(-2 * (k * x) ** 2) * (1 if k % 2 else -1) for k in range(1, 101))
    return min(1.0, max(0.0, 2 * math.fsum(terms)))
