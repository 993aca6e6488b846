"""Writes C++ that holds the files of the page. Usage: embed_page.py page.css page.html page.js > embedded_page.cc"""

import os
import sys

from tools.deps.cpp_literal import literal

NAMES = {"page.css": "kPageStyle", "page.html": "kPageFrame", "page.js": "kPageScript"}


def main(paths):
    print('#include "tools/view/view_page.h"\n\nnamespace weir::view {\n')
    for path in paths:
        with open(path, encoding="utf-8") as file:
            print(f"const char {NAMES[os.path.basename(path)]}[] =\n    {literal(file.read())};")
    print("\n}  // namespace weir::view")


if __name__ == "__main__":
    main(sys.argv[1:])
