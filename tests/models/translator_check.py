"""Checks the translator itself, with PyTorch: translate_test.py runs this program in an interpreter that has it.

The models are translated anew, trained by Weir on one device and on a mesh, and compared with PyTorch; the weights go
there and back; and what Weir cannot express is refused by name.
"""

import copy
import os
import pathlib
import subprocess
import sys
import tempfile
import traceback
import unittest
import warnings

import torch
import torch.nn.functional as F
from torch import nn

import weir
from tests.models import models, torch_losses, translation, weir_runs
from weir import safetensors_file

TEXT = {"tokens": ("batch", "sequence"), "targets": ("batch", "sequence"), "batch": 4, "sequence": 6}
STEPS = 4


class Net(nn.Module):
    """A module whose forward is a function of the module and its input."""

    def __init__(self, forward, **members):
        super().__init__()
        self.run = forward
        for name, member in members.items():
            setattr(self, name, member)

    def forward(self, x):
        return self.run(self, x)


def translate(forward, **members):
    return weir.from_torch(Net(forward, **members), x=("batch", "n"), targets="f32[batch, n]", batch=4, n=6, loss="mse")


def heads_of(parts, heads):
    """Returns q, k and v [batch, heads, sequence, head_dim] that stand side by side in the last dimension."""
    return [part.unflatten(2, (heads, -1)).transpose(1, 2) for part in parts.chunk(3, -1)]


class EqualityTest(unittest.TestCase):

    def test_every_model_has_the_losses_of_pytorch(self):
        for name in models.MODELS:
            translated = translation.translate(name)
            with tempfile.TemporaryDirectory() as folder:
                translated.job.write(folder)
                ours = {run: weir_runs.losses(os.environ["WEIR"], folder, weir_runs.RUNS[run], STEPS)
                        for run in ("one device", "dp=2,tp=2")}
            theirs = translated.torch_losses(STEPS)
            for run, losses in ours.items():
                with self.subTest(model=name, run=run):
                    self.assertLessEqual(weir_runs.difference(losses, theirs), weir_runs.LOSS_TOLERANCE)

    def test_weights_go_there_and_back(self):
        for name in models.MODELS:
            translated = translation.translate(name)
            with self.subTest(model=name), tempfile.TemporaryDirectory() as folder:
                translated.job.write(folder)
                before = translated.model.state_dict()
                after = translated.graph.state_dict(pathlib.Path(folder, "weights.safetensors"))
                self.assertEqual(after.keys(), before.keys())
                for key, value in before.items():
                    self.assertTrue(torch.equal(after[key], value), key)
                translated.model.load_state_dict(after)

    def test_the_map_beside_a_job_reads_the_state_dict(self):
        for name in models.MODELS:
            translated = translation.translate(name)
            with self.subTest(model=name), tempfile.TemporaryDirectory() as folder:
                translated.job.write(folder)
                files = ("job.textproto", "public.safetensors", "own.safetensors", "back.safetensors")
                job, public, own, back = (pathlib.Path(folder, file) for file in files)
                # Tied tensors are there under all their names, and buffers, too.
                state = {key: tensor for key, tensor in translated.model.state_dict().items()
                         if tensor.dtype == torch.float32}
                safetensors_file.write(public, {
                    key: ("F32", tuple(tensor.shape), lambda tensor=tensor: tensor.contiguous().numpy().tobytes())
                    for key, tensor in state.items()})
                by_map = [job, "--map", f"{job.with_suffix('')}.weights.textproto"]
                subprocess.run([os.environ["WEIR"], "weights", "convert", *by_map, public, "-o", own], check=True)
                weights = pathlib.Path(folder, "weights.safetensors")
                self.assertEqual(safetensors_file.read(own), safetensors_file.read(weights))
                subprocess.run([os.environ["WEIR"], "export", *by_map, "--weights", own, "--safetensors", back],
                               check=True)
                written, before = safetensors_file.read(back), safetensors_file.read(public)
                parameters = {key for key, _ in translated.model.named_parameters()}
                self.assertEqual(written, {key: before[key] for key in parameters})

    def test_trained_weights_are_those_of_pytorch(self):
        translated = translation.translate("llama")
        with tempfile.TemporaryDirectory() as folder:
            weir.train(translated.job, folder=folder, mesh="dp=2").wait()
            ours = translated.graph.state_dict(pathlib.Path(folder, "trained.safetensors"))
        translated.torch_losses(torch_losses.STEPS)
        for key, value in translated.model.state_dict().items():
            self.assertLess((ours[key] - value).abs().max().item(), 1e-4, key)


class OperationsTest(unittest.TestCase):
    """Small modules, each with a few operations that the models do not have, against PyTorch."""

    SIZES = {"batch": 8, "sequence": 6, "features": 12}

    def differs(self, forward, loss="mse", **members):
        torch.manual_seed(1)
        net = Net(forward, **members)
        inputs = {"x": ("batch", "sequence", "features"), "targets": "f32[batch, sequence, features]", "loss": loss,
                  **self.SIZES}
        graph = weir.from_torch(net, **inputs)
        optimizer = weir.AdamW(torch_losses.RATE, torch_losses.BETAS, torch_losses.EPSILON, torch_losses.WEIGHT_DECAY)
        job = weir.job(graph, steps=STEPS, data="synthetic", optimizer=optimizer, seed=torch_losses.SEED)
        with tempfile.TemporaryDirectory() as folder:
            ours = [metrics["loss"] for metrics in weir.train(job, folder=folder)]
        return weir_runs.difference(ours, torch_losses.train(net, inputs, STEPS))

    def test_functions_of_one_element(self):
        for function in (F.mish, F.hardswish, F.relu6, F.logsigmoid, F.softplus, F.leaky_relu, F.elu, F.silu,
                         F.hardtanh, torch.erf, torch.sin, torch.expm1, lambda x: x.clamp(min=-0.2),
                         lambda x: (x**2 + 1).sqrt()**3):
            self.assertLess(self.differs(lambda net, x, f=function: f(net.fc(x)), fc=nn.Linear(12, 12)), 1e-5)

    def test_functions_of_two_tensors(self):
        shift = torch.randn(6, 12)
        for function in (lambda a, x: (2 - x) / (a**2 + 1), torch.maximum, lambda a, x: a + shift - 3 * x,
                         lambda a, x: torch.add(a, x, alpha=0.5), lambda a, x: a * x.mean(1, keepdim=True),
                         lambda a, x: torch.sub(a, shift.to(a.dtype), alpha=2),
                         lambda a, x: a - x.transpose(1, 2)[:, :1].transpose(1, 2)):
            self.assertLess(self.differs(lambda net, x, f=function: f(net.fc(x), x), fc=nn.Linear(12, 12)), 1e-5)

    def test_constants_that_are_made_in_place(self):
        def forward(net, x):
            table = torch.zeros(6, 12)
            table[:, 3:] = 2.0
            table[2].add_(torch.arange(12))
            return net.act(net.fc(x)) * table

        self.assertLess(self.differs(forward, fc=nn.Linear(12, 12), act=nn.ReLU(inplace=True)), 1e-5)

    def test_sums_and_norms(self):
        for function in (lambda x: F.normalize(x, dim=-1), lambda x: x / x.std(-1, keepdim=True),
                         lambda x: x - x.var(1, keepdim=True), lambda x: x - x.logsumexp((0, 2), keepdim=True),
                         lambda x: x * x.logsumexp(1)[:, None], lambda x: x * x.amax(2, keepdim=True),
                         lambda x: F.layer_norm(x, (12,)), lambda x: F.rms_norm(x, (12,)),
                         lambda x: torch.softmax(x, dim=1)):
            self.assertLess(self.differs(lambda net, x, f=function: f(net.fc(x)), fc=nn.Linear(12, 12)), 1e-5)

    def test_moves(self):
        for function in (lambda x: torch.stack([x, -x], 2).flatten(2).unflatten(2, (12, 2)).sum(-1),
                         lambda x: torch.cat([x[:, 2:], x[:, :2]], 1), lambda x: x.permute(2, 0, 1).movedim(0, 2),
                         lambda x: x.reshape(48, 12).t().reshape(12, 8, 6).permute(1, 2, 0),
                         lambda x: torch.cat(x.unbind(1)[::-1], 1).view(8, 6, 12),
                         lambda x: torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(2),
                         lambda x: torch.cat([x[:, 1:5:2], x[:, ::3], x[:, 4::1]], 1),
                         lambda x: x.narrow(2, 0, 1).expand(8, 6, 12) * x):
            self.assertLess(self.differs(lambda net, x, f=function: f(net.fc(x)), fc=nn.Linear(12, 12)), 1e-5)
        self.assertLess(self.differs(lambda net, x: F.glu(net.fc(x)), fc=nn.Linear(12, 24)), 1e-5)

    def test_indices_that_the_model_computes(self):
        def bags(net, x):
            best = x.topk(3, dim=1, largest=False)[1]  # [batch, 3, features], places in the sequence
            return net.fc(x) + net.fc(x).gather(1, best).sum(1, keepdim=True)

        def scattered(net, x):
            best = x.argsort(1, descending=True)
            return torch.zeros_like(x).scatter_add(1, best, net.fc(x)) + x.scatter_add(1, best[:, :2], net.fc(x)[:, :2])

        def rows(net, x):
            place = x.argmax(-1)  # [batch, sequence], places in the features
            return net.table(place) + net.fc(x) * F.one_hot(x.argmin(-1), 12).to(x.dtype)

        def taken(net, x):
            places = x[0, :, 0].argsort()
            return net.fc(x).index_select(1, places) + net.fc(x).index_add(1, places, net.fc(x), alpha=2)

        for forward in (bags, scattered, rows, taken, lambda net, x: net.fc(x).cumsum(1),
                        lambda net, x: net.bag(x.argsort(-1).flatten(0, 1)).view(8, 6, 12)):
            members = {"fc": nn.Linear(12, 12)}
            if forward is rows:
                members["table"] = nn.Embedding(12, 12)
            if not {"bags", "scattered", "rows", "taken"} & {forward.__name__}:
                members["bag"] = nn.EmbeddingBag(12, 12, mode="mean")
            self.assertLess(self.differs(forward, **members), 1e-5)

    def test_images(self):
        fixed = nn.BatchNorm2d(3).eval()
        fixed.running_mean.normal_(), fixed.running_var.uniform_(0.5, 2.0)
        for module in (nn.Conv2d(3, 4, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2)),
                       nn.Conv2d(3, 6, 3, padding="same", groups=3, bias=False), nn.Conv2d(3, 2, 2, stride=2),
                       nn.Conv2d(3, 2, (4, 3), stride=(4, 3)), nn.Sequential(nn.Flatten(2), nn.Conv1d(3, 4, 5, 2)),
                       nn.ConvTranspose2d(3, 5, 3, stride=2, padding=1, output_padding=1),
                       nn.ConvTranspose2d(3, 6, 2, groups=3), nn.MaxPool2d(3, 2, padding=1, ceil_mode=True),
                       nn.MaxPool2d(2, 1, dilation=2), nn.AvgPool2d(3, 2, padding=1, ceil_mode=True),
                       nn.AvgPool2d((2, 3), count_include_pad=False, padding=(1, 0)), nn.AdaptiveAvgPool2d((3, 2)),
                       nn.AdaptiveAvgPool2d(1), nn.Upsample(scale_factor=(2, 3)), nn.ZeroPad2d((1, 0, -1, 2)),
                       nn.GroupNorm(3, 3), nn.GroupNorm(1, 3, affine=False), nn.BatchNorm2d(3),
                       nn.BatchNorm2d(3, affine=False), fixed):
            def forward(net, x):
                image = net.points(x.unflatten(2, (3, 4)).transpose(1, 2))
                made = net.module(image).flatten(1)
                return x * (made * torch.arange(made.shape[1]) / made.shape[1]).mean(1)[:, None, None]

            with self.subTest(module=str(module)), warnings.catch_warnings():
                warnings.filterwarnings("ignore", "batch normalisation:")
                self.assertLess(self.differs(forward, points=nn.Conv2d(3, 3, 1), module=module), 1e-5)

    def test_products_of_two_tensors(self):
        table = torch.randn(6, 6)
        for function in (lambda a, x: (a @ x.transpose(1, 2)) @ x / 12, lambda a, x: x @ (a.mT @ x) / 12,
                         lambda a, x: (a.view(8, 6, 3, 4).transpose(1, 2) @ x[:, None, :, :4].mT
                                       @ x[:, None]).sum(1) / 9,
                         lambda a, x: (x[:, None] @ torch.stack([a.mT, x.mT], 1)).mean((1, 3))[..., None] * x,
                         lambda a, x: torch.bmm(a.mT, x).mT[:, :6] / 6, lambda a, x: (table.to(a.dtype) @ a) * x,
                         lambda a, x: torch.baddbmm(x, table.to(a.dtype).expand(8, 6, 6), a,
                                                      alpha=0.5, beta=2),
                         lambda a, x: torch.baddbmm(table.to(a.dtype).expand(8, 6, 6), a, x.mT, beta=3) @ x / 12,
                         lambda a, x: a[:, :1] @ x.mT @ x / 12 + x, lambda a, x: x * (a @ x[0, 0])[..., None],
                         lambda a, x: (a.flatten(1).t() @ x.flatten(1)).view(6, 12, 6, 12).mean((1, 3)) @ x,
                         lambda a, x: a + (a.unflatten(2, (3, 4)).transpose(1, 2)
                                           @ x.view(8, 6, 3, 4).permute(0, 2, 3, 1)
                                           @ a.new_ones(1, 1, 6, 4)).transpose(1, 2).flatten(2) / 24):
            self.assertLess(self.differs(lambda net, x, f=function: f(net.fc(x), x), fc=nn.Linear(12, 12)), 1e-5)

    def test_einsum(self):
        table = torch.randn(4, 3)
        heads = (8, 6, 3, 4)
        for equation, view in (("bij,bkj->bik", (8, 6, 12)), ("bihd,bjhd->bhij", heads), ("bihd,bihe->bhde", heads),
                               ("bihd,bijd->bihj", heads), ("bihd,bihd->bih", heads), ("bi,bj->bji", (8, 72))):
            def forward(net, x, equation=equation, view=view):
                y = net.fc(x)
                result = torch.einsum(equation, y.reshape(view), x.reshape(view))
                return y * result.flatten(1).mean(1)[:, None, None]

            with self.subTest(equation=equation):
                self.assertLess(self.differs(forward, fc=nn.Linear(12, 12)), 1e-5)
        for function in (lambda net, x: torch.einsum("bsd,hde->bshe", x, net.heads).flatten(2),
                         lambda net, x: x * torch.einsum("dk,bsd->bks", table.to(x.dtype), x @ net.heads[0]).mean()):
            self.assertLess(self.differs(function, heads=nn.Parameter(torch.randn(3, 12, 4) / 4)), 1e-5)

    def test_constant_masks(self):
        mask = torch.tensor([[True, False, True, False, False, True]] * 12).T
        for function in (lambda x: x.masked_fill(mask, -2.0), lambda x: torch.where(mask, x, 0.5),
                         lambda x: torch.where(mask, -x, x**2), lambda x: x.tril(2), lambda x: x.triu(),
                         lambda x: torch.softmax(x.masked_fill(mask, -torch.inf), dim=1),
                         lambda x: torch.softmax(x + torch.full((6, 12), -torch.inf).triu(8), dim=2),
                         lambda x: torch.softmax(torch.where(mask, torch.finfo(x.dtype).min, x), dim=1),
                         lambda x: torch.where(mask, torch.where(mask, 1.0, -torch.inf).to(x.dtype), x)):
            self.assertLess(self.differs(lambda net, x, f=function: f(net.fc(x)), fc=nn.Linear(12, 12)), 1e-5)

    def test_attention_under_any_constant_mask(self):
        ones = torch.ones(6, 6, dtype=torch.bool)
        for mask in (ones.tril(1), ones.tril().T, torch.randn(6, 6).where(ones.tril(), -torch.inf)):
            def forward(net, x, mask=mask):
                q, k, v = heads_of(net.qkv(x), 3)
                seen = mask if mask.dtype == torch.bool else mask.to(x.dtype) + net.bias
                return F.scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(1, 2).flatten(2)

            self.assertLess(self.differs(forward, qkv=nn.Linear(12, 36), bias=nn.Parameter(torch.randn(3, 6, 6))), 1e-5)

        def grouped(net, x):
            q, k, v = (part.unflatten(2, (-1, 3)).transpose(1, 2) for part in net.qkv(x).split((12, 6, 6), -1))
            attended = F.scaled_dot_product_attention(q, k, v, attn_mask=ones.tril(1), enable_gqa=True)
            return attended.transpose(1, 2).flatten(2)

        self.assertLess(self.differs(grouped, qkv=nn.Linear(12, 24)), 1e-5)

    def test_attention_written_by_hand(self):
        seen = torch.ones(6, 6).tril()

        def attend(q, k, v):
            return torch.softmax((q @ k.mT / 2).masked_fill(seen == 0, -torch.inf), dim=-1) @ v

        def one_head(net, x):
            return attend(*net.qkv(x).chunk(3, -1))

        def grouped(net, x):
            q, k, v = (part.unflatten(2, (-1, 3)).transpose(1, 2) for part in net.qkv(x).split((12, 6, 6), -1))
            return attend(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)).transpose(1, 2).flatten(2)

        def one_query(net, x):
            q, k, v = net.qkv(x).chunk(3, -1)
            return attend(q[:, :1], k, v)

        for function, width in ((one_head, 36), (grouped, 24), (one_query, 36)):
            self.assertLess(self.differs(function, qkv=nn.Linear(12, width)), 1e-5)

    def test_constant_rows_of_a_table(self):
        distance = (torch.arange(6)[:, None] - torch.arange(6)).clamp(-2, 2) + 2
        for rows in (distance, torch.arange(36).view(6, 6) % 5, torch.tensor([[3]] * 6)):
            def forward(net, x, rows=rows):
                scores = (x @ x.mT).unsqueeze(1) / 12 + net.table(rows).permute(2, 0, 1)
                return net.fc((scores @ x.unsqueeze(1)).mean(1))

            self.assertLess(self.differs(forward, fc=nn.Linear(12, 12), table=nn.Embedding(5, 3)), 1e-5)

    def test_attention_over_other_positions(self):
        for options in ({}, {"bias": False}, {"kdim": 5, "vdim": 7}):
            def forward(net, x):
                k, v = (x[:, :4, :5], x[:, :4, 2:9]) if net.attend.kdim == 5 else (x[:, :4] * 2, x[:, :4])
                return net.attend(net.fc(x), k, v, need_weights=False)[0]

            attend = nn.MultiheadAttention(12, 3, batch_first=True, **options)
            self.assertLess(self.differs(forward, fc=nn.Linear(12, 12), attend=attend), 1e-5)
        for mask in (torch.ones(6, 4, dtype=torch.bool).triu(2), torch.randn(8 * 3, 6, 4)):
            def masked(net, x, mask=mask):
                seen = mask if mask.dtype == torch.bool else mask.to(x.dtype)
                return net.attend(net.fc(x), x[:, :4], x[:, 2:], attn_mask=seen, need_weights=False)[0]

            attend = nn.MultiheadAttention(12, 3, batch_first=True)
            self.assertLess(self.differs(masked, fc=nn.Linear(12, 12), attend=attend), 1e-5)

    def test_masks_that_depend_on_the_inputs(self):
        row = torch.randn(12)
        for function in (lambda y, x: y.masked_fill(x > 0.5, 0.25), lambda y, x: torch.where(x < row, y, -y),
                         lambda y, x: torch.where((x > 0.2) & ~(x >= 0.8) | (x == 0), y, y * 2),
                         lambda y, x: torch.where(x[..., :1] <= 0.5, y, 1.5), lambda y, x: y * (x != 0.5).float(),
                         lambda y, x: torch.where(x.transpose(1, 2).sum(1, keepdim=True).mT > 6, 0.0, y),
                         lambda y, x: y * (x > 0.5),
                         lambda y, x: torch.where(x[:, :, 0] > 0.5, 1.0, -1.0)[..., None] * y,
                         lambda y, x: y.masked_fill((x > 0.5).logical_xor(x < 0.7), 0.0),
                         lambda y, x: torch.where(torch.ones(12, dtype=torch.bool) & (x > 0.5), y, row)):
            self.assertLess(self.differs(lambda net, x, f=function: f(net.fc(x), x), fc=nn.Linear(12, 12)), 1e-5)

    def test_attention_with_a_mask_of_the_data(self):
        causal = torch.ones(6, 6, dtype=torch.bool).tril()

        def seen_by(x):  # the first key is always seen
            return (x[..., 0] > 0.4) | (torch.arange(6) == 0)

        def padded(net, x, mask):
            q, k, v = heads_of(net.qkv(x), 3)
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask(x)).transpose(1, 2).flatten(2)

        for mask in (lambda x: seen_by(x)[:, None, None], lambda x: causal & seen_by(x)[:, None, None],
                     lambda x: (x @ x.mT > 3)[:, None] | torch.eye(6, dtype=torch.bool),
                     lambda x: (1 - seen_by(x)[:, None, None].to(x.dtype)) * -1e4):
            self.assertLess(self.differs(lambda net, x, m=mask: padded(net, x, m), qkv=nn.Linear(12, 36)), 1e-5)

        def by_hand(net, x):
            q, k, v = heads_of(net.qkv(x), 3)
            scores = (q @ k.mT / 2).masked_fill(~seen_by(x)[:, None, None], -torch.inf)
            return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)

        self.assertLess(self.differs(by_hand, qkv=nn.Linear(12, 36)), 1e-5)

        def pytorchs_own(net, x, mask=None):
            return net.attend(net.fc(x), x, x, key_padding_mask=~seen_by(x), attn_mask=mask, need_weights=False)[0]

        for mask in (None, ~causal):
            attend = nn.MultiheadAttention(12, 3, batch_first=True)
            self.assertLess(self.differs(lambda net, x, m=mask: pytorchs_own(net, x, m), fc=nn.Linear(12, 12),
                                         attend=attend), 1e-5)

    def test_losses_of_some_targets_and_smoothed_ones(self):
        class Classifier(nn.Module):

            def __init__(self):
                super().__init__()
                self.table, self.head = nn.Embedding(96, 16), nn.Linear(16, 96)

            def forward(self, tokens):
                return self.head(self.table(tokens))

        for options, given in (({"label_smoothing": 0.1}, {}), ({"ignore_index": 5}, {}),
                               ({"ignore_index": -100, "label_smoothing": 0.2}, {"ignore_index": -100})):
            loss = lambda y, t, o=options: F.cross_entropy(y.flatten(0, 1), t.flatten(), **o)  # noqa: E731
            inputs = {**TEXT, "loss": loss, **given}
            torch.manual_seed(2)
            model = Classifier()
            graph = weir.from_torch(model, **inputs)
            optimizer = weir.AdamW(torch_losses.RATE, torch_losses.BETAS, torch_losses.EPSILON,
                                   torch_losses.WEIGHT_DECAY)
            job = weir.job(graph, steps=STEPS, data=translation.data_of(inputs), optimizer=optimizer,
                           seed=torch_losses.SEED)
            with self.subTest(options=options), tempfile.TemporaryDirectory() as folder:
                for micro_batches in (1, 2):
                    ours = [metrics["loss"] for metrics in weir.train(
                        job, folder=folder, arguments=["--set", f"training.micro_batches={micro_batches}"])]
                    theirs = torch_losses.train(copy.deepcopy(model), inputs, STEPS)
                    self.assertLess(weir_runs.difference(ours, theirs), 1e-5)

    def test_the_ignored_value_is_that_of_the_user_or_of_the_loss(self):
        model = nn.Sequential(nn.Embedding(96, 16), nn.Linear(16, 96))
        of_five = lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten(), ignore_index=5)  # noqa: E731
        named = weir.from_torch(model, **TEXT, loss=of_five).text
        self.assertIn("ignore_index", named)
        self.assertEqual(weir.from_torch(model, **TEXT, ignore_index=5).text, named)
        self.assertEqual(weir.from_torch(model, **TEXT, loss=of_five, ignore_index=5).text, named)
        with self.assertRaisesRegex(weir.Error, "ignores 5, while from_torch has ignore_index=4"):
            weir.from_torch(model, **TEXT, loss=of_five, ignore_index=4)
        with self.assertRaisesRegex(weir.Error, "ignore_index=4: expected a cross entropy"):
            weir.from_torch(nn.Linear(12, 12), x=("batch", "features"), batch=4, features=12, loss="mse",
                            ignore_index=4, targets="f32[batch, features]")

    def test_losses(self):
        for loss in (F.l1_loss, F.binary_cross_entropy_with_logits, lambda y, t: ((y - t)**2).sum() / 100):
            self.assertLess(self.differs(lambda net, x: net.fc(x), loss=loss, fc=nn.Linear(12, 12)), 1e-5)


class FormTest(unittest.TestCase):

    def ops(self, graph):
        return [line.split('op: "')[1].split('"')[0] for line in graph.text.splitlines() if 'op: "' in line]

    def test_layers_become_calls_of_one_function(self):
        text = translation.translate("gpt2").graph.text
        self.assertEqual(text.count('function: "GPT2Block"'), 2)
        self.assertIn('"transformer.h.1"', text)

    def test_formulas_and_moves_become_single_operations(self):
        ops = self.ops(translation.translate("llama").graph)
        self.assertEqual((ops.count("rms_norm"), ops.count("rotary"), ops.count("attention")), (3, 2, 1))
        self.assertNotIn("transpose", ops)
        self.assertNotIn("concat", ops)

    def test_attention_over_repeated_heads_and_pytorchs_own_encoder_need_no_copies(self):
        class Grouped(nn.Module):

            def __init__(self):
                super().__init__()
                self.embed, self.q, self.kv = nn.Embedding(24, 16), nn.Linear(16, 16), nn.Linear(16, 16)

            def forward(self, tokens):
                x = self.embed(tokens)
                batch, sequence, _ = x.shape
                q = self.q(x).view(batch, sequence, 4, 4).transpose(1, 2)
                k, v = (part.view(batch, sequence, 2, 4).transpose(1, 2) for part in self.kv(x).chunk(2, -1))
                k = k[:, :, None].expand(batch, 2, 2, sequence, 4).reshape(batch, 4, sequence, 4)
                attended = F.scaled_dot_product_attention(q, k, v.repeat_interleave(2, 1), is_causal=True)
                return attended.transpose(1, 2).reshape(batch, sequence, 16) @ self.embed.weight.T

        self.assertNotIn("transpose", self.ops(weir.from_torch(Grouped(), **TEXT)))
        decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(12, 3, 24, dropout=0.0, batch_first=True), 2)

        def decode(net, x):
            mask = nn.Transformer.generate_square_subsequent_mask(6)
            return net.decoder(x, net.memory(x)[:, :4], tgt_mask=mask)

        graph = weir.from_torch(Net(decode, decoder=decoder, memory=nn.Linear(12, 12)), loss="mse", batch=4, sequence=6,
                                x=("batch", "sequence", "features"), features=12,
                                targets="f32[batch, sequence, features]")
        self.assertEqual(graph.text.count("op: \"attention\""), 2)
        self.assertEqual(graph.text.count("name: \"causal\" value { b: true }"), 1)
        self.assertNotIn("transpose", self.ops(graph))
        self.assertEqual(graph.weight("decoder.layers.1.multihead_attn.in_proj_weight.2").shape, (12, 12))
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True, norm_first=True)
        encoder = nn.Sequential(nn.Embedding(24, 16), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
                                nn.Linear(16, 24))
        ops = self.ops(weir.from_torch(encoder, **TEXT))
        self.assertEqual(ops.count("attention"), 1)
        self.assertNotIn("transpose", ops)

    def test_attention_written_by_hand_is_recognised(self):
        seen = torch.ones(6, 6).tril()

        def masked(scores):
            return scores.masked_fill(seen == 0, -torch.inf)

        def attend(net, x, mask, heads, dropout):
            parts = heads_of(net.qkv(x), heads)
            q, k, v = parts if heads > 1 else (part.squeeze(1) for part in parts)
            weights = F.dropout(torch.softmax(mask(q @ k.transpose(-2, -1) / 2), dim=-1), dropout)
            result = weights @ v
            return result.transpose(1, 2).flatten(2) if heads > 1 else result

        def grouped(net, x):
            q = net.qkv(x)[..., :12].unflatten(2, (4, 3)).transpose(1, 2)
            k, v = (part.unflatten(2, (2, 3)).transpose(1, 2).repeat_interleave(2, 1)
                    for part in net.qkv(x)[..., 12:24].chunk(2, -1))
            return (masked(q @ k.mT / 2).softmax(-1) @ v).transpose(1, 2).flatten(2)

        graph = weir.from_torch(Net(grouped, qkv=nn.Linear(12, 36)), x=("batch", "sequence", "features"), batch=4,
                                targets="f32[batch, sequence, features]", loss="mse", sequence=6, features=12)
        self.assertEqual(self.ops(graph).count("attention"), 1)
        self.assertNotIn("concat", self.ops(graph))
        cases = (("causal", masked, 3, 0.0, True), ("one head", masked, 1, 0.0, True),
                 ("finite", lambda s: torch.where(seen > 0, s, torch.finfo(s.dtype).min), 3, 0.0, True),
                 ("of the data", lambda s: s.masked_fill(s[..., :1, :] < 0, -torch.inf), 3, 0.0, True),
                 ("added", lambda s: s + (1 - seen) * -1e9, 3, 0.0, True), ("no mask", lambda s: s, 3, 0.0, True),
                 ("dropout", masked, 3, 0.1, False), ("upper", lambda s: s + seen * -1e9 + s, 3, 0.0, False))
        for name, mask, heads, dropout, recognised in cases:
            net = Net(lambda net, x, m=mask, h=heads, p=dropout: attend(net, x, m, h, p), qkv=nn.Linear(12, 36))
            ops = self.ops(weir.from_torch(net, x=("batch", "sequence", "features"), batch=4, sequence=6, features=12,
                                           targets="f32[batch, sequence, features]", loss="mse"))
            with self.subTest(case=name):
                self.assertEqual(ops.count("attention"), int(recognised))
                of_mask = 1 if name == "of the data" else 0  # this mask reads the scores
                self.assertEqual(ops.count("batched_matmul"), of_mask if recognised else 2)
                if recognised and not of_mask:
                    self.assertNotIn("transpose", ops)

    def test_a_mask_is_a_window_only_if_it_is_one_exactly(self):
        causal = torch.ones(6, 6, dtype=torch.bool).tril()
        nearly = causal.triu(-2).clone()
        nearly[4, 2] = False
        windows = {"causal": (causal, None), "3": (causal.triu(-2), 3), "1": (causal.triu(0), 1), "nearly": (nearly, 0),
                   "ahead": (causal.triu(-2).mT, 0), "one of two": (torch.stack([causal, causal.triu(-2)]), 0),
                   "both": (torch.stack([causal.triu(-2)] * 2), 3)}
        for name, (mask, window) in windows.items():
            def forward(net, x, mask=mask):
                q, k, v = heads_of(net.qkv(x), 2)
                return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)

            graph = weir.from_torch(Net(forward, qkv=nn.Linear(12, 36)), x=("batch", "sequence", "features"), batch=4,
                                    sequence=6, features=12, targets="f32[batch, sequence, features]", loss="mse")
            with self.subTest(mask=name):
                self.assertEqual(self.ops(graph).count("attention"), 0 if window == 0 else 1)
                self.assertEqual('"window"' in graph.text, bool(window))
                if window:
                    self.assertIn(f'attr {{ name: "window" value {{ i: {window} }} }}', graph.text)

    def test_dropout_inside_attention_leaves_the_operations(self):
        def forward(net, x):
            q, k, v = heads_of(net.qkv(x), 2)
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.1).transpose(1, 2).flatten(2)

        with self.assertWarnsRegex(UserWarning, "keeps all its probabilities"):
            graph = weir.from_torch(Net(forward, qkv=nn.Linear(12, 36)), x=("batch", "sequence", "features"), batch=4,
                                    sequence=6, features=12, targets="f32[batch, sequence, features]", loss="mse")
        self.assertEqual([self.ops(graph).count(op) for op in ("attention", "softmax", "dropout", "batched_matmul")],
                         [0, 1, 1, 2])

    def test_dropout_in_training_mode_stays(self):
        self.assertIn("dropout", self.ops(translate(lambda net, x: net.drop(net.fc(x)), fc=nn.Linear(6, 6),
                                                    drop=nn.Dropout(0.1))))

    def test_parameters_without_gradient_are_frozen(self):
        fc = nn.Linear(6, 6)
        fc.bias.requires_grad_(False)
        self.assertEqual(translate(lambda net, x: net.fc(x), fc=fc).text.count("frozen: true"), 1)


class RefusalTest(unittest.TestCase):

    def refused(self, forward, **members):
        with self.assertRaises(weir.Unsupported) as caught:
            translate(forward, **members)
        return caught.exception

    def test_everything_that_is_missing_is_listed_at_once(self):
        def forward(net, x):
            x = torch.where(net.head(x) > 0.5, x, -x)
            return net.head(x.cumprod(-1)) * x.logcumsumexp(-1)

        error = self.refused(forward, head=nn.Linear(6, 6))
        self.assertEqual([part["op"] for part in error.missing], ["aten.cumprod", "aten.logcumsumexp"])
        self.assertIn("translator_check.py:", str(error))

    def test_modules_are_named(self):
        error = self.refused(lambda net, x: net.norm(net.fc(x)), fc=nn.Linear(6, 6), norm=nn.InstanceNorm1d(4))
        self.assertEqual({part["module"] for part in error.missing}, {"norm"})
        self.assertIn("Weir has no instance normalisation yet", str(error))

    def test_running_statistics_are_parameters_that_training_updates(self):
        net = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6, momentum=0.25))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            graph = weir.from_torch(net, x=("batch", "n"), targets="f32[batch, n]", batch=4, n=6, loss="mse")
        self.assertEqual(graph.text.count('op: "moving_average"'), 2)
        self.assertEqual(graph.text.count('op: "reduce_variance"'), 1)
        self.assertIn("1.running_mean", graph.weight_map())
        self.assertEqual(graph.weight("1.running_var").tolist(), [1.0] * 6)

    def test_running_statistics_that_stay_are_told(self):
        net = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6, momentum=0.0))
        with self.assertWarnsRegex(UserWarning, "running_mean and running_var stay as they are.* such module is 1$"):
            weir.from_torch(net, x=("batch", "n"), targets="f32[batch, n]", batch=4, n=6, loss="mse")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            weir.from_torch(net.eval(), x=("batch", "n"), targets="f32[batch, n]", batch=4, n=6, loss="mse")

    def test_images_that_weir_cannot_make_are_refused(self):
        for module, hint in ((nn.Conv2d(1, 1, 2, padding="same"), "both sides alike"),
                             (nn.AdaptiveAvgPool2d(2), "divides the input size"),
                             (nn.ReflectionPad2d(1), "zeros only"),
                             (nn.Upsample(scale_factor=1.5), "whole factors"),
                             (nn.Upsample(scale_factor=2, mode="bilinear"), "nearest")):
            def forward(net, x):
                made = net.module(net.fc(x)[:, None, :, None].expand(4, 1, 6, 3) + x[:, None, :, None] * net.ones)
                return x + made.mean()

            error = self.refused(forward, fc=nn.Linear(6, 6), module=module, ones=torch.ones(3))
            self.assertIn(hint, str(error))

    def test_masks_that_hide_everything_are_refused(self):
        def forward(net, x):
            heads = net.fc(x)[:, None, :, None]
            return F.scaled_dot_product_attention(heads, heads, heads, attn_mask=net.mask)[:, 0, :, 0]

        mask = torch.ones(6, 6, dtype=torch.bool).tril(-1)
        self.assertIn("hides everything", str(self.refused(forward, fc=nn.Linear(6, 6), mask=mask)))

    def test_products_that_repeat_matrices_are_refused(self):
        def forward(net, x):
            parts = net.fc(x).view(4, 1, 2, 3)
            return (parts @ parts.view(1, 4, 3, 2)).flatten(1)[:, :6]

        self.assertIn("[4, 1] and [1, 4]", str(self.refused(forward, fc=nn.Linear(6, 6))))

    def test_a_stopped_gradient_is_refused(self):
        error = self.refused(lambda net, x: net.fc(x).detach() + net.fc(x), fc=nn.Linear(6, 6))
        self.assertIn("stop a gradient", str(error))

    def test_changes_that_others_see_are_refused(self):
        def in_place(net, x):
            y = net.fc(x)
            part = y[:, :3]
            y.mul_(2.0)
            return y + part.repeat(1, 2)

        def of_a_buffer(net, x):
            net.count[:1].add_(1.0)
            return net.fc(x) * net.count

        class Counts(Net):

            def __init__(self):
                super().__init__(of_a_buffer, fc=nn.Linear(6, 6))
                self.register_buffer("count", torch.ones(6))

        self.assertIn("in place", str(self.refused(in_place, fc=nn.Linear(6, 6))))
        with self.assertRaisesRegex(weir.Unsupported, "changes one of its buffers"):
            weir.from_torch(Counts(), x=("batch", "n"), targets="f32[batch, n]", batch=4, n=6, loss="mse")

    def test_a_model_that_chooses_by_values_is_refused(self):
        with self.assertRaisesRegex(weir.Error, r"torch.export cannot capture the model at translator_check.py:\d+.*\n"
                                                "  The model must not choose its operations by the values") as caught:
            translate(lambda net, x: net.fc(x) if x.sum() > 0 else x, fc=nn.Linear(6, 6))
        self.assertLess(len("".join(traceback.format_exception(caught.exception)).splitlines()), 40)
        with self.assertRaisesRegex(weir.Error, "sizes that do not depend on the values(.|\n)*The model must not"):
            weir.from_torch(Net(lambda net, x: net.fc(net.table(x))[:, :int(x.max().item())],
                                table=nn.Embedding(24, 8), fc=nn.Linear(8, 24)), x="i32[batch, sequence]",
                            targets=("batch", "sequence"), batch=4, sequence=6)

    def test_a_model_that_pytorch_refuses_too_is_refused_with_its_line(self):
        expected = r"translator_check.py:\d+: RuntimeError(.|\n)*The inputs were x f32\[4, 6"
        with self.assertRaisesRegex(weir.Error, expected) as caught:
            translate(lambda net, x: net.fc(x), fc=nn.Linear(7, 6))
        self.assertNotIn("must not choose", str(caught.exception))

    def test_inputs_that_are_indices_become_integers(self):
        net = Net(lambda net, idx: net.fc(net.table(idx)), table=nn.Embedding(24, 8), fc=nn.Linear(8, 24))
        with self.assertWarnsRegex(UserWarning, r"input tiles as indices, .*tiles=\"i32\[batch, sequence\]\" says so"):
            graph = weir.from_torch(net, tiles=("batch", "sequence"), targets=("batch", "sequence"), batch=4,
                                    sequence=6)
        self.assertIn('name: "tiles" type: "i32[batch, sequence]"', graph.text)
        with self.assertRaisesRegex(weir.Error, r"input tiles is f32 but .* indices. Try: tiles=\"i32\[batch, s=6\]\""):
            weir.from_torch(net, tiles="f32[batch, s=6]", targets=("batch", "s"), batch=4)

    def test_only_the_input_that_is_an_index_becomes_integers(self):

        class Two(nn.Module):

            def __init__(self):
                super().__init__()
                self.table, self.fc = nn.Embedding(24, 8), nn.Linear(8, 24)

            def forward(self, x, idx):
                return self.fc(self.table(idx) * x)

        with self.assertWarnsRegex(UserWarning, "input idx as indices"):
            graph = weir.from_torch(Two(), x=("batch", "sequence", "h=8"), idx=("batch", "sequence"),
                                    targets=("batch", "sequence"), batch=4, sequence=6)
        self.assertIn('name: "x" type: "f32[', graph.text)

    def test_labels_of_a_model_with_a_loss_of_its_own_lead_to_targets(self):

        class Shifts(nn.Module):

            def __init__(self):
                super().__init__()
                self.table, self.fc = nn.Embedding(24, 8), nn.Linear(8, 24)

            def forward(self, tokens, labels=None):
                logits = self.fc(self.table(tokens))
                return F.cross_entropy(logits.flatten(0, 1), F.pad(labels, (0, 1), value=-100)[:, 1:].flatten())

        inputs = {("labels" if key == "targets" else key): value for key, value in TEXT.items()}
        with self.assertRaisesRegex(weir.Unsupported, "Try: targets= in place of labels="):
            weir.from_torch(Shifts(), **inputs)

    def test_what_is_no_module_is_refused(self):
        net = nn.Sequential(nn.Embedding(24, 8), nn.Linear(8, 24))
        for model, found in ((torch.compile(net), "Try: model._orig_mod"), (nn.DataParallel(net), "Try: model.module"),
                             (lambda tokens: net(tokens), "found function"), (nn.Linear, r"Try: Linear\(...\)")):
            with self.assertRaisesRegex(weir.Error, found):
                weir.from_torch(model, **TEXT)

    def test_padding_and_recurrent_layers_are_refused_with_a_hint(self):
        error = self.refused(lambda net, x: F.pad(net.fc(x), (1, -1), value=1.0), fc=nn.Linear(6, 6))
        self.assertIn("zeros only", str(error))
        for layer in (nn.GRU, nn.LSTM):
            self.assertIn("no recurrent layers", str(self.refused(lambda net, x: net.fc(x.view(4, 6, 1))[0].flatten(1),
                                                                  fc=layer(1, 1, batch_first=True))))

    def test_padding_with_zeros_is_possible(self):
        graph = translate(lambda net, x: F.pad(net.fc(x), (1, -1)), fc=nn.Linear(6, 6))
        self.assertIn('op: "pad"', graph.text)

    def test_padding_by_concatenation_is_possible(self):
        graph = translate(lambda net, x: torch.cat([torch.zeros(4, 1), net.fc(x)], 1), fc=nn.Linear(6, 5))
        self.assertIn('op: "concat"', graph.text)

    def test_a_model_without_loss_is_refused(self):
        with self.assertRaisesRegex(weir.Error, "an input called `targets`"):
            weir.from_torch(nn.Linear(6, 6), x=("batch", "n"), batch=4, n=6)

    def test_a_dimension_without_size_is_refused(self):
        with self.assertRaisesRegex(weir.Error, "a size for the dimension \"n\""):
            weir.from_torch(nn.Linear(6, 6), x=("batch", "n"), targets=("batch",), batch=4)

    def test_a_model_in_a_short_type_is_refused(self):
        with self.assertRaisesRegex(weir.Error, r"expected f32; found torch.bfloat16. Try: model.float\(\)"):
            weir.from_torch(nn.Sequential(nn.Embedding(24, 8), nn.Linear(8, 24)).bfloat16(), **TEXT)

    def test_a_row_for_padding_is_a_warning(self):
        model = nn.Sequential(nn.Embedding(24, 8, padding_idx=0), nn.Linear(8, 24))
        with self.assertWarnsRegex(UserWarning, "padding_idx=0"):
            weir.from_torch(model, **TEXT)


if __name__ == "__main__":
    sys.exit(unittest.main())
