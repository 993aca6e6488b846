"""Trains the GPT of torch_gpt.py in several processes over gloo, with PyTorch's own means. Prints one line of JSON.

    torch_parallel.py --how ddp --layers 8 --hidden 256 --heads 4 --vocab 256 --sequence 64 --batch 8 --steps 10

--how names a way:
  single    one process, which accumulates micro-batches
  ddp       DistributedDataParallel
  fsdp      fully_shard, so ZeRO-3
  tp        DTensor: columns, then rows
  megatron  the same with SequenceParallel
  ulysses   all-to-all around attention, which PyTorch lacks and a user writes; gradients by DDP
  1f1b      Schedule1F1B
  list      only says what the installed PyTorch lacks for each of the ways

The batch is that of all processes together, and all processes together compute the same as one process. Without
MEETING_FOLDER in its environment, the program starts its processes itself (rank_processes.py). This start is like
torchrun without its agent, and therefore a little faster.
"""

import argparse
import importlib
import json
import os
import sys
import time

import rank_processes


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("layers", "hidden", "heads", "vocab", "sequence", "batch"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--how", choices=sorted(["single", "list", *WAYS]), required=True)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--micro-batches", type=int, default=1)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--first-line", help="a file that gets a line after the first step")
    return parser.parse_args()


# WAYS maps a name on the command line to a class below.
WAYS = {"ddp": "Ddp", "fsdp": "Fsdp", "tp": "TensorParallel", "megatron": "MegatronParallel", "ulysses": "Ulysses",
        "1f1b": "OneForwardOneBackward"}


# MODULES lists the modules and the names that each way needs. Older releases of PyTorch lack some of these names.
MODULES = {
    "fsdp": [("torch.distributed.device_mesh", "init_device_mesh"), ("torch.distributed.fsdp", "fully_shard")],
    "tp": [("torch.distributed.tensor.parallel", "loss_parallel"), ("torch.nn.utils", "get_total_norm")],
    "megatron": [("torch.distributed.tensor.parallel", "loss_parallel"), ("torch.nn.utils", "get_total_norm")],
    "ulysses": [("torch.distributed._functional_collectives", "all_to_all_single_autograd")],
    "1f1b": [("torch.distributed.pipelining", "Schedule1F1B"), ("torch.nn.utils", "get_total_norm")],
}


if __name__ == "__main__":
    ARGS = arguments()
    if ARGS.how not in ("single", "list") and "MEETING_FOLDER" not in os.environ:
        sys.exit(rank_processes.run([sys.executable, *sys.argv], ARGS.processes))

import torch  # noqa: E402  (the starter runs without torch)
import torch.distributed as dist  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import torch_gpt  # noqa: E402

GELU = {"approximate": "tanh"}


def mean_loss(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Trainer:
    """A Trainer trains the whole batch in one process. Each subclass overrides only what it does differently."""

    def __init__(self, args):
        self.args = args
        self.rank, self.world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        torch.manual_seed(1)
        self.tokens = torch.randint(args.vocab, (args.batch, args.sequence))
        self.targets = torch.randint(args.vocab, (args.batch, args.sequence))
        self.model = self.make_model()
        self.optimizer = torch_gpt.adamw_of(self.parameter_groups())

    def make_model(self):
        return torch_gpt.Gpt(self.args)

    def parameter_groups(self):
        """Groups the parameters by decay, with DTensors apart, since the fused optimiser takes no mixture."""
        groups = {}
        for parameter in self.model.parameters():
            decay = 0.1 if parameter.ndim > 1 else 0.0
            groups.setdefault((decay, type(parameter.data)),
                              {"params": [], "weight_decay": decay})["params"].append(parameter)
        return list(groups.values())

    def step(self):
        loss = self.forward_backward()
        self.clip()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss

    def forward_backward(self):
        total, count = 0.0, self.args.micro_batches
        for tokens, targets in zip(self.tokens.chunk(count), self.targets.chunk(count)):
            loss = self.loss_of(tokens, targets) / count
            loss.backward()
            total += loss.item()
        return total

    def loss_of(self, tokens, targets):
        return self.model(tokens, targets)

    def clip(self):
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)


class OwnShare(Trainer):
    """An OwnShare trains on its process's part of the batch."""

    def shard(self):
        self.tokens, self.targets = (part.chunk(self.world)[self.rank] for part in (self.tokens, self.targets))


class Ddp(OwnShare):

    def make_model(self):
        self.shard()
        return torch.nn.parallel.DistributedDataParallel(torch_gpt.Gpt(self.args), gradient_as_bucket_view=True)


class Fsdp(OwnShare):

    def make_model(self):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        self.shard()
        mesh = init_device_mesh("cpu", (self.world,))
        model = torch_gpt.Gpt(self.args)
        for block in model.blocks:
            fully_shard(block, mesh=mesh, reshard_after_forward=True)
        return fully_shard(model, mesh=mesh, reshard_after_forward=True)


class Attention(torch.nn.Module):
    """Attention keeps q, k and v apart, so that each of the three is split by heads.

    The number of heads that come in shows the split.
    """

    def __init__(self, hidden, heads):
        super().__init__()
        self.head_size = hidden // heads
        self.q, self.k, self.v, self.out = (torch.nn.Linear(hidden, hidden) for _ in range(4))

    def forward(self, x):
        q, k, v = (part.view(*part.shape[:2], -1, self.head_size).transpose(1, 2)
                   for part in (self.q(x), self.k(x), self.v(x)))
        attended = torch_gpt.causal_attention(q, k, v)
        return self.out(attended.transpose(1, 2).flatten(2))


class FeedForward(torch.nn.Module):

    def __init__(self, hidden, ffn):
        super().__init__()
        self.up, self.down = torch.nn.Linear(hidden, ffn), torch.nn.Linear(ffn, hidden)

    def forward(self, x):
        return self.down(F.gelu(self.up(x), **GELU))


class SplitBlock(torch.nn.Module):

    def __init__(self, hidden, heads, ffn):
        super().__init__()
        self.attention_norm, self.attention = torch.nn.LayerNorm(hidden), Attention(hidden, heads)
        self.ffn_norm, self.ffn = torch.nn.LayerNorm(hidden), FeedForward(hidden, ffn)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.ffn(self.ffn_norm(x))


class TensorParallel(Trainer):
    """TensorParallel splits columns, then rows. It also splits the vocabulary in embedding, head and loss."""

    def make_model(self):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import parallelize_module
        self.mesh = init_device_mesh("cpu", (self.world,))
        model = torch_gpt.Gpt(self.args)
        model.blocks = torch.nn.ModuleList(SplitBlock(self.args.hidden, self.args.heads, 4 * self.args.hidden)
                                           for _ in range(self.args.layers))
        for block in model.blocks:
            parallelize_module(block, self.mesh, self.plan_of_block())
        return parallelize_module(model, self.mesh, self.plan_of_ends())

    def plan_of_block(self):
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel
        plan = {"attention." + name: ColwiseParallel() for name in "qkv"}
        return {**plan, "attention.out": RowwiseParallel(), "ffn.up": ColwiseParallel(), "ffn.down": RowwiseParallel()}

    def plan_of_ends(self):
        from torch.distributed.tensor import Replicate, Shard
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel
        return {"tokens": RowwiseParallel(input_layouts=Replicate()),
                "vocab": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)}

    def loss_of(self, tokens, targets):
        from torch.distributed.tensor.parallel import loss_parallel
        model = self.model
        with loss_parallel():
            x = model.tokens(tokens) + self.positions()
            for block in model.blocks:
                x = block(x)
            loss = mean_loss(model.vocab(model.final_norm(x)), targets)
            loss.backward()
        return loss

    def positions(self):
        return self.model.positions

    def forward_backward(self):
        return self.loss_of(self.tokens, self.targets).full_tensor().item()

    def clip(self):
        """Clips DTensors and other tensors apart, since clip_grad_norm_ takes no mixture of them."""
        from torch.distributed.tensor import DTensor
        gradients = [parameter.grad for parameter in self.model.parameters()]
        split = [gradient for gradient in gradients if isinstance(gradient, DTensor)]
        whole = [gradient for gradient in gradients if not isinstance(gradient, DTensor)]
        norms = ([torch.nn.utils.get_total_norm(split).full_tensor()]
                 + ([torch.nn.utils.get_total_norm(whole)] if whole else []))
        torch._foreach_mul_([gradient.to_local() for gradient in split] + whole, clip_factor(norms))


def clip_factor(norms):
    return torch.clamp(1.0 / (torch.linalg.vector_norm(torch.stack(norms)) + 1e-6), max=1.0)


class MegatronParallel(TensorParallel):
    """MegatronParallel also splits the tokens between the products."""

    def make_model(self):
        from torch.distributed.tensor import Shard, distribute_tensor
        model = super().make_model()
        model.positions = torch.nn.Parameter(distribute_tensor(model.positions.data, self.mesh, [Shard(0)]))
        return model

    def plan_of_block(self):
        from torch.distributed.tensor import Replicate, Shard
        from torch.distributed.tensor.parallel import PrepareModuleInput, RowwiseParallel, SequenceParallel
        gather = {"input_layouts": (Shard(1),), "desired_input_layouts": (Replicate(),)}
        plan = super().plan_of_block()
        plan.update({name: SequenceParallel() for name in ("attention_norm", "ffn_norm")})
        plan.update({name: PrepareModuleInput(**gather) for name in ("attention", "ffn")})
        plan.update({name: RowwiseParallel(output_layouts=Shard(1)) for name in ("attention.out", "ffn.down")})
        return plan

    def plan_of_ends(self):
        from torch.distributed.tensor import Replicate, Shard
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel
        return {"tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
                "final_norm": SequenceParallel(),
                "vocab": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False)}

    def positions(self):
        return self.model.positions.to_local()


class UlyssesBlock(torch_gpt.Block):
    """A UlyssesBlock splits the heads inside attention, and the tokens everywhere else."""

    def forward(self, x):
        batch, tokens, hidden = x.shape
        world = dist.get_world_size()
        qkv = self.qkv(self.attention_norm(x)).view(batch, tokens, 3, world, hidden // world)
        qkv = swap(qkv.permute(3, 0, 2, 1, 4)).permute(2, 1, 0, 3, 4)
        q, k, v = qkv.reshape(3, batch, world * tokens, self.heads // world, -1).transpose(2, 3)
        attended = torch_gpt.causal_attention(q, k, v).transpose(1, 2)
        attended = swap(attended.reshape(batch, world, tokens, hidden // world).transpose(0, 1))
        x = x + self.out(attended.permute(1, 2, 0, 3).reshape(batch, tokens, hidden))
        return x + self.down(F.gelu(self.up(self.ffn_norm(x)), **GELU))


def swap(parts):
    from torch.distributed._functional_collectives import all_to_all_single_autograd
    return all_to_all_single_autograd(parts.contiguous(), None, None, dist.group.WORLD)


class UlyssesGpt(torch_gpt.Gpt):

    def __init__(self, args):
        super().__init__(args)
        self.blocks = torch.nn.ModuleList(UlyssesBlock(args.hidden, args.heads, 4 * args.hidden)
                                          for _ in range(args.layers))

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions.chunk(dist.get_world_size())[dist.get_rank()]
        for block in self.blocks:
            x = block(x)
        return mean_loss(self.vocab(self.final_norm(x)), targets)


class Ulysses(Trainer):

    def make_model(self):
        self.tokens, self.targets = (part.chunk(self.world, 1)[self.rank] for part in (self.tokens, self.targets))
        return torch.nn.parallel.DistributedDataParallel(UlyssesGpt(self.args), gradient_as_bucket_view=True)


class Stage(torch.nn.Module):
    """A Stage is a part of the blocks.

    The first stage also has what comes before the blocks, and the last stage has what comes after them.
    """

    def __init__(self, model, stage, stages):
        super().__init__()
        count = len(model.blocks) // stages
        self.blocks = model.blocks[stage * count:(stage + 1) * count]
        self.first, self.last = stage == 0, stage == stages - 1
        if self.first:
            self.tokens, self.positions = model.tokens, model.positions
        if self.last:
            self.final_norm, self.vocab = model.final_norm, model.vocab

    def forward(self, x):
        if self.first:
            x = self.tokens(x) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.vocab(self.final_norm(x)) if self.last else x


class OneForwardOneBackward(Trainer):

    def make_model(self):
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B
        model = Stage(torch_gpt.Gpt(self.args), self.rank, self.world)
        stage = PipelineStage(model, self.rank, self.world, torch.device("cpu"))
        self.schedule = Schedule1F1B(stage, self.args.micro_batches, loss_fn=mean_loss)
        return model

    def forward_backward(self):
        losses = []
        inputs = [self.tokens] if self.model.first else []
        last = {"target": self.targets, "losses": losses} if self.model.last else {}
        self.schedule.step(*inputs, **last, return_outputs=False)
        return sum(loss.item() for loss in losses) / max(1, len(losses))

    def clip(self):
        """Clips by the norm over all stages."""
        gradients = [parameter.grad for parameter in self.model.parameters()]
        squares = torch.nn.utils.get_total_norm(gradients) ** 2
        dist.all_reduce(squares)
        torch._foreach_mul_(gradients, clip_factor([squares.sqrt()]))


def lacks(how):
    """Returns the module that this way needs and that the installed PyTorch lacks, or ""."""
    for module in MODULES.get(how, []):
        try:
            found = importlib.import_module(module[0])
        except ImportError:
            return module[0]
        if not hasattr(found, module[1]):
            return ".".join(module)
    return ""


def main(args):
    if args.how == "list":
        print(json.dumps({"version": torch.__version__, "lacks": {how: lacks(how) for how in WAYS if lacks(how)}}))
        return
    torch.set_num_threads(1)
    trainer_of = globals()[WAYS[args.how]] if args.how != "single" else Trainer
    if args.how != "single":
        dist.init_process_group("gloo", init_method=f"file://{os.environ['MEETING_FOLDER']}/meeting",
                                rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    trainer = trainer_of(args)
    walls = []
    for step in range(args.warmup + args.steps):
        before = time.perf_counter()
        loss = trainer.step()
        walls.append(time.perf_counter() - before)
        if step == 0 and trainer.rank == 0 and args.first_line:
            with open(args.first_line, "w", encoding="ascii") as file:
                file.write(f"loss {loss}\n")
    if trainer.rank == trainer.world - 1:
        print(json.dumps({"wall": walls[args.warmup:], "loss": loss, "version": torch.__version__}), flush=True)
    if dist.is_initialized():
        # The threads of gloo now and then end a process with an error when they are taken down in order.
        dist.barrier()
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    main(ARGS)
