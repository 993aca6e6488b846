"""Computes Weir's synthetic data (runtime/store/synthetic_dataset.cc) again, so that PyTorch has the same batches.

A number is a function of the seed, the name of the feed, the sample and the element. A wrong number here shows as
another loss in the first step.
"""

_MASK64 = (1 << 64) - 1
_MASK32 = (1 << 32) - 1


def _mix(a, b):
    z = (a + 0x9E3779B97F4A7C15 * (b + 1)) & _MASK64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK64
    return z ^ (z >> 31)


def _key_of(text):
    key = 0xCBF29CE484222325
    for byte in text.encode():
        key = ((key ^ byte) * 0x100000001B3) & _MASK64
    return key


def _philox(key, counter):
    c0, c1, c2, c3 = counter & _MASK32, counter >> 32, 0, 0
    k0, k1 = key & _MASK32, key >> 32
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & _MASK32, (p0 >> 32) ^ c3 ^ k1, p0 & _MASK32
        k0, k1 = (k0 + 0x9E3779B9) & _MASK32, (k1 + 0xBB67AE85) & _MASK32
    return c0, c1, c2, c3


def mask(feed, seed, step, rows, length):
    """Returns the rows of a mask in one step: a random number of true places, at least one, and then false places."""
    key = _mix(_mix(seed, _key_of(feed)), 0)
    values = []
    for row in range(step * rows, (step + 1) * rows):
        uniform = (_philox(key, row >> 2)[row & 3] >> 8) * 2.0**-24
        values.append([place < 1 + int(uniform * length) for place in range(length)])
    return values


def _integer(uniform, below, ignored):
    if ignored is not None:
        if uniform < 0.25:
            return ignored
        uniform = (uniform - 0.25) / 0.75
    return int(uniform * below)


def batch(feed, seed, step, rows, width, below=None, ignored=None):
    """Returns the rows of a feed in one step: lists of `width` integers below `below`, or of real numbers in [0, 1).

    A quarter of the integers is `ignored`, unless that is None.
    """
    stream = below is not None and feed in ("tokens", "targets")
    key = _mix(_mix(seed, _key_of("tokens" if stream else feed)), 0)
    gap, first = (1, 1 if feed == "targets" else 0) if stream else (0, 0)
    words, values = {}, []
    for sample in range(step * rows, (step + 1) * rows):
        row = []
        for element in range(width):
            place = sample * (width + gap) + element + first
            if place >> 2 not in words:
                words[place >> 2] = _philox(key, place >> 2)
            uniform = (words[place >> 2][place & 3] >> 8) * 2.0**-24
            row.append(uniform if below is None else _integer(uniform, below, ignored))
        values.append(row)
    return values
