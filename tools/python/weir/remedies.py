"""Says in Python what the program `weir` advises as text of a job file."""

import re

# Patterns of the program's advice, and the same advice for a program in Python.
_REMEDIES = (
    (r'rule \{ dim: "([^"]+)" axis: "([^"]+)" \}', r'weir.job(..., rules={"\1": "\2"})'),
    (r"ignore_index: (-?\d+)", r"weir.from_torch(..., ignore_index=\1)"),
    (r'scale \{ name: "([^"]+)" by: 0\.00392156862745098 \}', r'weir.job(..., data={..., "scale": {"\1": 1 / 255}})'),
    (r'scale \{ name: "([^"]+)" by: 1 \}', r'weir.job(..., data={..., "scale": {"\1": 1}})'),
    (r'data \{ feed \{ input: "([^"]+)" from: "([^"]+)" \} \}', r'weir.job(..., data={..., "feed": {"\1": "\2"}})'),
)


def with_remedy(text):
    """Returns an error of the program, and in one more line its advice as Python, if there is such advice."""
    flat = " ".join(text.split())
    for pattern, remedy in _REMEDIES:
        match = re.search(pattern, flat)
        if match:
            return f"{text}\n  In Python: {match.expand(remedy)}"
    return text
