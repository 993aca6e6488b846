#!/usr/bin/env python3
"""Splits the King James Bible ("Ge1:1 In the beginning ...", one verse a line) for training.

    split_chapters.py TEXT OUT [EVERY]

Writes to OUT first all chapters except every EVERY-th (default 20), then every EVERY-th chapter. The end of the file is
therefore a sample of all books rather than the last of the books. Prints the share to hold out:

    weir zoo gpt --data OUT --held-out SHARE ...
"""
import sys


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    every = int(sys.argv[3]) if len(sys.argv) == 4 else 20
    chapters = {}
    with open(sys.argv[1], encoding="latin-1") as text:
        for line in text:
            chapters.setdefault(line.split(":", 1)[0], []).append(line)
    parts = ["".join(lines) for lines in chapters.values()]
    train = [part for i, part in enumerate(parts) if i % every != every - 1]
    held = [part for i, part in enumerate(parts) if i % every == every - 1]
    with open(sys.argv[2], "w", encoding="latin-1") as out:
        out.write("".join(train + held))
    size = sum(map(len, parts))
    # The printed share is a little too small, so that the evaluation uses nothing of the training chapters.
    print(f"{int(1e5 * sum(map(len, held)) / size) / 1e5:.5f}")


if __name__ == "__main__":
    main()
