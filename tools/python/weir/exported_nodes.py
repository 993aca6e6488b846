"""What the nodes of an exported program of PyTorch say of the user's code."""


def describe_op(node):
    """Returns the name by which a person knows an operation of the exported program, such as "aten.where"."""
    target = node.target
    schema = getattr(target, "_schema", None)
    if schema is not None:
        return schema.name.replace("::", ".")
    return getattr(target, "__name__", str(target))


def module_path(node):
    """Returns the path of the module that ran a node, in the names of the user's model."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path = stack[-1][0] if stack else ""
    for prefix in ("L['self'].", "L__self__."):
        path = path[len(prefix):] if path.startswith(prefix) else path
    if path == "_model":
        return ""
    return path[len("_model."):] if path.startswith("_model.") else ""


def source_line(node):
    """Returns "file:line" of the user's code that ran a node, or an empty text."""
    lines = [line.strip() for line in (node.meta.get("stack_trace") or "").splitlines()]
    files = [line for line in lines if line.startswith("File ")]
    if not files:
        return ""
    parts = files[-1].split('"')
    number = parts[2].split("line ")[1].split(",")[0] if "line " in parts[2] else ""
    return f"{parts[1]}:{number}".rstrip(":")
