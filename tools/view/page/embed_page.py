"""Writes C++ that holds the files of the page. Usage: embed_page.py page.css page.html page.js > embedded_page.cc

Prints the size of the page to standard error, and fails if the page is too large for a browser to get at once.
"""

import os
import sys
import zlib

from tools.deps.cpp_literal import literal

PACKED_BYTES_MAX = 1_000_000
NAMES = {"page.css": "kPageStyle", "page.html": "kPageFrame", "page.js": "kPageScript"}


def check_size(paths):
    whole = packed = 0
    for path in paths:
        with open(path, "rb") as file:
            text = file.read()
        whole += len(text)
        packed += len(zlib.compress(text, 9))
    print(f"the page of weir view: {whole} bytes, {packed} compressed", file=sys.stderr)
    if packed > PACKED_BYTES_MAX:
        sys.exit(f"expected at most {PACKED_BYTES_MAX} bytes compressed")


def main(paths):
    check_size(paths)
    print('#include "tools/view/view_page.h"\n\nnamespace weir::view {\n')
    for path in paths:
        with open(path, encoding="utf-8") as file:
            print(f"const char {NAMES[os.path.basename(path)]}[] =\n    {literal(file.read())};")
    print("\n}  // namespace weir::view")


if __name__ == "__main__":
    main(sys.argv[1:])
