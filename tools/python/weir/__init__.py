"""Brings models of PyTorch to Weir, starts their training, and brings the weights back.

    g = weir.from_torch(model, tokens=("batch", "sequence"), targets=("batch", "sequence"), batch=8, sequence=64)
    job = weir.job(g, mesh="dp=2,tp=2", rules={"batch": "dp", "heads": "tp"}, data="book.txt", steps=100)
    job.write("folder")
    for metrics in weir.train(job, processes=2):
        print(metrics["loss"])
    model.load_state_dict(g.state_dict("folder/trained.safetensors"))

Only `from_torch` needs PyTorch.
"""

from weir.errors import Error, Unsupported
from weir.jobs import Adafactor, AdamW, Adapters, Group, Job, Lamb, Lion, Muon, PrecisionRule, Schedule, Sgd, job
from weir.runs import Run, train
from weir.token_files import build_tokens

__all__ = ["Adafactor", "AdamW", "Adapters", "Error", "Group", "Job", "Lamb", "Lion", "Muon", "PrecisionRule", "Run",
           "Schedule", "Sgd", "Unsupported", "build_tokens", "from_torch", "job", "train"]


def from_torch(model, **options):
    """Returns the graph and the weights of a module of PyTorch; weir.pytorch.from_torch says what `options` are."""
    try:
        import torch
    except ImportError:
        raise Error("expected PyTorch 2.5 or later; found none. Try: pip install 'torch>=2.5'") from None
    from weir.torch_version import check_version
    check_version(torch.__version__)
    from weir.pytorch import from_torch as implementation
    return implementation(model, **options)
