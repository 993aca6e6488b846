"""The version of PyTorch that the package needs, without importing PyTorch."""

from weir.errors import Error

OLDEST = (2, 5)


def numbers_of(version):
    """Returns (2, 5) for "2.5.1+cpu"."""
    return tuple(int(part) for part in version.split("+")[0].split(".")[:2])


def check_version(version):
    """Refuses a PyTorch whose torch.export does not keep modules and names."""
    if numbers_of(version) < OLDEST:
        raise Error("expected PyTorch 2.5 or later, whose torch.export keeps modules and names; found PyTorch "
                    f"{version}. Try: pip install 'torch>=2.5' in an environment of its own")
