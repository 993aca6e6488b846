"""Writes C++ that holds the files of the page. Usage: embed_page.py page.css page.html page.js > embedded_page.cc"""

import os
import sys

PIECE_MAX = 8000  # characters of a literal
NAMES = {"page.css": "kPageStyle", "page.html": "kPageFrame", "page.js": "kPageScript"}


def literal(text):
    """Returns the text as adjacent C++ raw strings."""
    assert ')PAGE"' not in text
    return "\n    ".join('R"PAGE(' + text[at:at + PIECE_MAX] + ')PAGE"' for at in range(0, len(text), PIECE_MAX))


def main(paths):
    print('#include "tools/view/view_page.h"\n\nnamespace weir::view {\n')
    for path in paths:
        with open(path, encoding="utf-8") as file:
            print(f"const char {NAMES[os.path.basename(path)]}[] =\n    {literal(file.read())};")
    print("\n}  // namespace weir::view")


if __name__ == "__main__":
    main(sys.argv[1:])
