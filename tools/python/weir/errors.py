"""The errors of the package. Each message says what was expected, what was found, and what to try."""


class Error(Exception):
    """An Error says why a model, a job or a run was refused. Errors of the program `weir` keep the program's text."""


class Unsupported(Error):
    """An Unsupported error lists every part of a model that Weir cannot express.

    `missing` holds one entry per part: a dictionary with the keys "op", "module", "line" and "hint". `advice` is a
    sentence about the whole.
    """

    def __init__(self, missing, advice=""):
        self.missing = missing
        lines = [f"Weir cannot express {len(missing)} part{'s' if len(missing) > 1 else ''} of the model:"]
        for part in missing:
            lines.append(f"  {part['op']} in {part['module'] or 'the model itself'}"
                         + (f", {part['line']}" if part["line"] else ""))
            if part["hint"]:
                lines.append(f"      {part['hint']}")
        super().__init__("\n".join(lines + [advice] * bool(advice)))
