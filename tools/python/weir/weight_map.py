"""The map from the tensors of a state_dict to the weights of a job, as text (proto/weights.proto)."""

import re

from weir.dims import sizes
from weir.textproto import Message, to_text

CONSTANTS_FILE = "weights.safetensors"  # the file that holds all weights beside the job
_NUMBER = re.compile(r"\d+")


def map_text(name, weights, shapes, aliases, buffers):
    """Returns the text of the map.

    weights  {name in the job: Parameter}
    shapes   {name in the state_dict: shape of the stored tensor}
    aliases  {further name of a tied tensor: its first name}
    buffers  names in the state_dict of tensors that are no parameters
    """
    further = {}
    for alias, first in aliases.items():
        further.setdefault(first, []).append(alias)
    message = Message([("name", name)])
    groups = {}  # {pattern of weights: [(weight, parameter, pattern of the source)]}
    constants = {}  # patterns of weights, in order
    for weight, parameter in weights.items():
        if parameter.cut is None:
            constants[_patterns(weight, weight)[0]] = True
            continue
        pattern, source = weight, parameter.cut.source
        if source not in further:
            pattern, source = _patterns(weight, source)
        groups.setdefault(pattern, []).append((weight, parameter, source))
    for pattern, members in groups.items():
        rules = [_rule(pattern, parameter, [source], shapes) for _, parameter, source in members]
        if len(members) > 1 and all(rule == rules[0] for rule in rules):
            message.add("rule", rules[0])
            continue
        for weight, parameter, _ in members:
            names = [parameter.cut.source, *further.get(parameter.cut.source, [])]
            message.add("rule", _rule(weight, parameter, names, shapes))
    for buffer in buffers:
        message.add("ignore", buffer)
    for alias, first in aliases.items():
        message.add("alias", Message([("tensor", alias), ("same_as", first)]))
    for pattern in constants:
        message.add("constant", pattern)
    if constants:
        message.add("constants_file", CONSTANTS_FILE)
    return "# proto-file: proto/weights.proto\n# proto-message: weir.proto.WeightMap\n\n" + to_text(message)


def _patterns(weight, source):
    """Returns both names with "{i}" for the first number, if both have the same path up to it."""
    ours, theirs = weight.split("."), source.split(".")
    for place, part in enumerate(ours):
        if ours[:place + 1] != theirs[:place + 1]:
            break
        if _NUMBER.fullmatch(part):
            ours[place] = theirs[place] = "{i}"
            return ".".join(ours), ".".join(theirs)
    return weight, source


def _rule(weight, parameter, tensors, shapes):
    cut = parameter.cut
    stored = tuple(shapes[cut.source])
    source = Message(("tensor", tensor) for tensor in tensors)
    part = tuple(cut.shape)
    if part != stored:
        source.add("view", list(part))
    if not cut.is_whole():
        source.add("range", Message([("axis", cut.axis), ("begin", cut.begin), ("size", cut.size)]))
        part = part[:cut.axis] + (cut.size,) + part[cut.axis + 1:]
    is_same = part == sizes(parameter.dims)
    if not (is_same and part == stored):
        source.add("shape", list(stored))
    rule = Message([("weight", weight), ("from", source)])
    if not is_same:
        rule.add("reshape", True)
    return rule
