"""The models of the fixtures: small modules of PyTorch and small models of the library transformers.

Each model has a few layers and at most 100 kB of weights. Nothing draws random numbers in the forward pass: PyTorch and
Weir would draw others.
"""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 8


class Attention(nn.Module):

    def __init__(self, hidden, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(attended.transpose(1, 2).flatten(2))


class Block(nn.Module):

    def __init__(self, hidden, heads, causal):
        super().__init__()
        self.attention_norm, self.ffn_norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.attention = Attention(hidden, heads, causal)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.down(F.gelu(self.up(self.ffn_norm(x))))


class Gpt(nn.Module):
    """A GPT as people write it: positions from arange, a fused projection, the table used again for the logits."""

    def __init__(self, vocab=96, hidden=24, heads=4, layers=2, sequence=16):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, hidden), nn.Embedding(2 * sequence, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads, True) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocab, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Encoder(nn.Module):
    """A pre-norm encoder that classifies sequences of real vectors by their mean."""

    def __init__(self, features=12, hidden=24, heads=4, layers=2, classes=10):
        super().__init__()
        self.embed = nn.Linear(features, hidden)
        self.blocks = nn.Sequential(*(Block(hidden, heads, False) for _ in range(layers)))
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.embed(x)).mean(dim=1)))


class Layer(nn.Module):

    def __init__(self, hidden):
        super().__init__()
        self.norm = nn.RMSNorm(hidden, eps=1e-6)
        self.up, self.down = nn.Linear(hidden, 3 * hidden), nn.Linear(3 * hidden, hidden)

    def forward(self, x):
        return x + self.down(F.silu(self.up(self.norm(x))))


class Mlp(nn.Module):
    """A residual MLP for regression."""

    def __init__(self, features=20, hidden=32, layers=2, results=4):
        super().__init__()
        self.embed = nn.Linear(features, hidden)
        self.layers = nn.ModuleList(Layer(hidden) for _ in range(layers))
        self.head = nn.Linear(hidden, results)

    def forward(self, x):
        x = torch.tanh(self.embed(x))
        for layer in self.layers:
            x = layer(x)
        return self.head(x) * 0.5


def _gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel
    return GPT2LMHeadModel(GPT2Config(vocab_size=96, n_positions=32, n_embd=24, n_layer=2, n_head=4, resid_pdrop=0,
                                      embd_pdrop=0, attn_pdrop=0, bos_token_id=0, eos_token_id=0))


def _llama():
    from transformers import LlamaConfig, LlamaForCausalLM
    return LlamaForCausalLM(LlamaConfig(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                                        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32,
                                        rope_theta=500000.0))


def _qwen2():
    from transformers import Qwen2Config, Qwen2ForCausalLM
    return Qwen2ForCausalLM(Qwen2Config(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                                        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32,
                                        tie_word_embeddings=True))


def _neox():
    # Its projection holds q, k and v of each head side by side, and its rotary positions turn a part of each head.
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM
    return GPTNeoXForCausalLM(GPTNeoXConfig(vocab_size=96, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                                            intermediate_size=48, max_position_embeddings=32, hidden_dropout=0,
                                            attention_dropout=0, rope_theta=10000.0))


def _bert():
    # With a row for padding, PyTorch would not train that row through the embedding.
    from transformers import BertConfig, BertForMaskedLM
    return BertForMaskedLM(BertConfig(vocab_size=96, hidden_size=24, num_hidden_layers=2, num_attention_heads=4,
                                      intermediate_size=48, max_position_embeddings=32, hidden_dropout_prob=0,
                                      attention_probs_dropout_prob=0, pad_token_id=None))


def _vit():
    from transformers import ViTConfig, ViTForImageClassification
    return ViTForImageClassification(ViTConfig(image_size=16, patch_size=4, num_channels=3, hidden_size=24,
                                               num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
                                               hidden_dropout_prob=0, attention_probs_dropout_prob=0, num_labels=10))


_TEXT = {"tokens": ("batch", "sequence"), "targets": ("batch", "sequence"), "batch": BATCH, "sequence": 16}
# {name: (function that makes the model, inputs of weir.from_torch)}
MODELS = {
    "mlp": (Mlp, {"x": ("batch", "features"), "targets": "f32[batch, results]", "batch": BATCH, "features": 20,
                  "results": 4, "loss": "mse"}),
    "encoder": (Encoder, {"x": ("batch", "sequence", "features"), "targets": ("batch",), "batch": BATCH, "sequence": 6,
                          "features": 12}),
    "gpt": (Gpt, _TEXT),
    "gpt2": (_gpt2, _TEXT),
    "llama": (_llama, _TEXT),
    "qwen2": (_qwen2, _TEXT),
    "neox": (_neox, _TEXT),
    "bert": (_bert, _TEXT),
    "vit": (_vit, {"images": "f32[batch, channels=3, height=16, width=16]", "targets": ("batch",), "batch": BATCH}),
}


def make(name):
    """Returns (model in training mode with seeded weights that are not small, inputs of weir.from_torch)."""
    maker, inputs = MODELS[name]
    torch.manual_seed(11)
    model = maker().train()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model, dict(inputs)
