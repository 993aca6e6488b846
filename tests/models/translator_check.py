"""Checks the translator itself, with PyTorch: translate_test.py runs this program in an interpreter that has it.

The models are translated anew, trained by Weir on one device and on a mesh, and compared with PyTorch; the weights go
there and back; and what Weir cannot express is refused by name.
"""

import os
import pathlib
import sys
import tempfile
import unittest

import torch
import torch.nn.functional as F
from torch import nn

import weir
from tests.models import models, torch_losses, translation, weir_runs

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
        job = weir.job(graph, steps=STEPS, optimizer=optimizer, seed=torch_losses.SEED)
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
                         lambda x: x - x.var(1, keepdim=True), lambda x: x * x.amax(2, keepdim=True),
                         lambda x: F.layer_norm(x, (12,)), lambda x: F.rms_norm(x, (12,)),
                         lambda x: torch.softmax(x, dim=1)):
            self.assertLess(self.differs(lambda net, x, f=function: f(net.fc(x)), fc=nn.Linear(12, 12)), 1e-5)

    def test_moves(self):
        for function in (lambda x: torch.stack([x, -x], 2).flatten(2).unflatten(2, (12, 2)).sum(-1),
                         lambda x: torch.cat([x[:, 2:], x[:, :2]], 1), lambda x: x.permute(2, 0, 1).movedim(0, 2),
                         lambda x: x.reshape(48, 12).t().reshape(12, 8, 6).permute(1, 2, 0),
                         lambda x: torch.cat(x.unbind(1)[::-1], 1).view(8, 6, 12),
                         lambda x: x.narrow(2, 0, 1).expand(8, 6, 12) * x):
            self.assertLess(self.differs(lambda net, x, f=function: f(net.fc(x)), fc=nn.Linear(12, 12)), 1e-5)
        self.assertLess(self.differs(lambda net, x: F.glu(net.fc(x)), fc=nn.Linear(12, 24)), 1e-5)

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
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True, norm_first=True)
        encoder = nn.Sequential(nn.Embedding(24, 16), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
                                nn.Linear(16, 24))
        ops = self.ops(weir.from_torch(encoder, **TEXT))
        self.assertEqual(ops.count("attention"), 1)
        self.assertNotIn("transpose", ops)

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
            return net.head(x.cumsum(-1)) * x.argmax(-1, keepdim=True)

        error = self.refused(forward, head=nn.Linear(6, 6))
        self.assertEqual([part["op"] for part in error.missing],
                         ["aten.gt", "aten.where", "aten.cumsum", "aten.argmax"])
        self.assertIn("translator_check.py:", str(error))

    def test_modules_are_named(self):
        error = self.refused(lambda net, x: net.norm(net.fc(x)), fc=nn.Linear(6, 6), norm=nn.BatchNorm1d(6))
        self.assertEqual({part["module"] for part in error.missing}, {"norm"})
        self.assertIn("Weir has no batch normalisation yet", str(error))

    def test_masks_that_are_not_causal_are_refused(self):
        mask = torch.ones(6, 6, dtype=torch.bool).tril(1)

        def forward(net, x):
            heads = net.fc(x)[:, None, :, None].expand(4, 1, 6, 1) * 1.0
            return F.scaled_dot_product_attention(heads, heads, heads, attn_mask=net.mask)[:, 0, :, 0]

        self.assertIn("not causal", str(self.refused(forward, fc=nn.Linear(6, 6), mask=mask)))

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
        with self.assertRaisesRegex(weir.Error, "torch.export cannot capture the model"):
            translate(lambda net, x: net.fc(x) if x.sum() > 0 else x, fc=nn.Linear(6, 6))

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
