"""The models of the fixtures: small modules of PyTorch and small models of the library transformers.

Each model has a few layers and at most 100 kB of weights. Nothing draws random numbers in the forward pass: PyTorch and
Weir would draw others.
"""

import math

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


class CausalSelfAttention(nn.Module):
    """Attention as two products, a buffer of ones below the diagonal and a softmax."""

    def __init__(self, hidden, heads, sequence):
        super().__init__()
        self.heads = heads
        self.c_attn, self.c_proj = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.attn_dropout = nn.Dropout(0.0)
        self.register_buffer("bias", torch.tril(torch.ones(sequence, sequence)).view(1, 1, sequence, sequence))

    def forward(self, x):
        batch, sequence, hidden = x.size()
        q, k, v = (part.view(batch, sequence, self.heads, hidden // self.heads).transpose(1, 2)
                   for part in self.c_attn(x).split(hidden, dim=2))
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        scores = scores.masked_fill(self.bias[:, :, :sequence, :sequence] == 0, float("-inf"))
        y = self.attn_dropout(F.softmax(scores, dim=-1)) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(batch, sequence, hidden))


class AlibiAttention(nn.Module):
    """Causal attention without position embeddings: each head lowers its scores by the distance at its own rate."""

    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        place = torch.arange(x.shape[1])
        slopes = 2.0**-torch.arange(1, self.heads + 1)
        bias = slopes[:, None, None] * (place[None, :] - place[:, None])
        bias = bias.masked_fill(place[None, :] > place[:, None], float("-inf"))
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(x.dtype))
        return self.out(attended.transpose(1, 2).flatten(2))


class MaskedBlock(nn.Module):

    def __init__(self, hidden, attention):
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(hidden), attention, nn.LayerNorm(hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class MaskedGpt(nn.Module):
    """A GPT with attention of its own; `attention` is a function that makes one, and `positions` their number or 0."""

    def __init__(self, attention, positions, vocab=96, hidden=24, layers=2):
        super().__init__()
        self.wte = nn.Embedding(vocab, hidden)
        self.wpe = nn.Embedding(positions, hidden) if positions else None
        self.h = nn.ModuleList(MaskedBlock(hidden, attention(hidden)) for _ in range(layers))
        self.ln_f, self.lm_head = nn.LayerNorm(hidden), nn.Linear(hidden, vocab, bias=False)

    def forward(self, tokens):
        x = self.wte(tokens)
        if self.wpe is not None:
            x = x + self.wpe(torch.arange(tokens.shape[1]).unsqueeze(0))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


class DecoderBlock(nn.Module):

    def __init__(self, hidden, heads):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(3))
        self.attention = Attention(hidden, heads, True)
        self.cross = nn.MultiheadAttention(hidden, heads, batch_first=True)
        self.up, self.down = nn.Linear(hidden, 2 * hidden), nn.Linear(2 * hidden, hidden)

    def forward(self, x, memory):
        x = x + self.attention(self.norms[0](x))
        x = x + self.cross(self.norms[1](x), memory, memory, need_weights=False)[0]
        return x + self.down(F.gelu(self.up(self.norms[2](x))))


class EncoderDecoder(nn.Module):
    """A decoder of text that attends to frames of real vectors: keys and values have other positions than queries."""

    def __init__(self, features=12, vocab=96, hidden=16, heads=4, layers=2, sequence=16):
        super().__init__()
        self.embed = nn.Linear(features, hidden)
        self.encoder = nn.ModuleList(Block(hidden, heads, False) for _ in range(layers))
        self.tokens, self.positions = nn.Embedding(vocab, hidden), nn.Embedding(sequence, hidden)
        self.decoder = nn.ModuleList(DecoderBlock(hidden, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(hidden), nn.Linear(hidden, vocab, bias=False)

    def forward(self, frames, tokens):
        memory = self.embed(frames)
        for block in self.encoder:
            memory = block(memory)
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.decoder:
            x = block(x, memory)
        return self.head(self.norm(x))


class LinearAttention(nn.Module):
    """Attention without softmax: the products of keys and values come first."""

    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.q, self.kv = nn.Linear(hidden, hidden), nn.Linear(hidden, 2 * hidden)
        self.out = nn.Linear(hidden, hidden)

    def forward(self, x):
        batch, sequence, hidden = x.shape
        k, v = self.kv(x).chunk(2, dim=-1)
        q, k, v = (part.view(batch, sequence, self.heads, -1).transpose(1, 2) for part in (self.q(x), k, v))
        q, k = F.elu(q) + 1, F.elu(k) + 1
        attended = q @ (k.transpose(-2, -1) @ v) / (q @ k.sum(dim=-2).unsqueeze(-1))
        return self.out(attended.transpose(1, 2).reshape(batch, sequence, hidden))


class LinearBlock(nn.Module):

    def __init__(self, hidden, heads):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(hidden), LinearAttention(hidden, heads)
        self.mlp = nn.Sequential(nn.LayerNorm(hidden), nn.Linear(hidden, 2 * hidden), nn.GELU(),
                                 nn.Linear(2 * hidden, hidden))

    def forward(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.mlp(x)


class LinearEncoder(nn.Module):
    """An encoder with linear attention: products of two computed tensors."""

    def __init__(self, vocab=96, hidden=24, heads=4, layers=2):
        super().__init__()
        self.tokens = nn.Embedding(vocab, hidden)
        self.blocks = nn.ModuleList(LinearBlock(hidden, heads) for _ in range(layers))
        self.head = nn.Linear(hidden, vocab)

    def forward(self, tokens):
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class ResidualUnit(nn.Module):
    """Two convolutions with group normalisation, beside a convolution of points."""

    def __init__(self, channels, out):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(2, channels), nn.GroupNorm(2, out)
        self.conv1, self.conv2 = (nn.Conv2d(c, out, 3, padding=1) for c in (channels, out))
        self.beside = nn.Conv2d(channels, out, 1)

    def forward(self, x):
        y = self.conv1(F.silu(self.norm1(x)))
        return self.beside(x) + self.conv2(F.silu(self.norm2(y)))


class UNet(nn.Module):
    """A U-Net: one way down by pooling, one way up by repeated elements and by a transposed convolution."""

    def __init__(self, channels=3, hidden=8, results=2):
        super().__init__()
        self.stem = nn.Conv2d(channels, hidden, 3, padding=1)
        self.down = nn.ModuleList([ResidualUnit(hidden, hidden), ResidualUnit(hidden, 2 * hidden)])
        self.middle = ResidualUnit(2 * hidden, 2 * hidden)
        self.up = nn.ModuleList([ResidualUnit(4 * hidden, hidden), ResidualUnit(2 * hidden, hidden)])
        self.enlarge = nn.ConvTranspose2d(hidden, hidden, 2, stride=2)
        self.head = nn.Conv2d(hidden, results, 1)

    def forward(self, x):
        first = self.down[0](self.stem(x))
        second = self.down[1](F.max_pool2d(first, 2))
        x = self.middle(F.avg_pool2d(second, 2))
        x = self.up[0](torch.cat([F.interpolate(x, scale_factor=2, mode="nearest"), second], 1))
        return self.head(self.up[1](torch.cat([self.enlarge(x), first], 1)))


class Dlrm(nn.Module):
    """A recommender: tables of different sizes, bags of several rows, and products of all pairs of vectors."""

    def __init__(self, features=6, hidden=8, rows=(40, 24, 7)):
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(features, 16), nn.ReLU(), nn.Linear(16, hidden), nn.ReLU())
        self.users, self.items = (nn.EmbeddingBag(count, hidden, mode="sum") for count in rows[:2])
        self.kinds = nn.Embedding(rows[2], hidden)
        self.top = nn.Sequential(nn.Linear(hidden + 6, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, dense, user_ids, item_ids, kind_ids):
        x = self.bottom(dense)
        vectors = torch.stack([x, self.users(user_ids), self.items(item_ids), self.kinds(kind_ids)], 1)
        products = vectors @ vectors.transpose(1, 2)
        i, j = torch.tril_indices(4, 4, offset=-1)
        return self.top(torch.cat([x, products[:, i, j]], 1))


class Experts(nn.Module):
    """A mixture of experts: each place uses the two experts that a router likes best, by a mask over all of them."""

    def __init__(self, hidden, ffn, count):
        super().__init__()
        self.router = nn.Linear(hidden, count, bias=False)
        self.up = nn.ModuleList(nn.Linear(hidden, ffn) for _ in range(count))
        self.down = nn.ModuleList(nn.Linear(ffn, hidden) for _ in range(count))

    def forward(self, x):
        values, chosen = self.router(x).topk(2, dim=-1)
        chosen = F.one_hot(chosen, len(self.up)).to(x.dtype)
        gates = (chosen * values.softmax(-1).unsqueeze(-1)).sum(-2)
        experts = zip(self.up, self.down)
        return sum(gates[..., e:e + 1] * down(F.gelu(up(x))) for e, (up, down) in enumerate(experts))


class MoeBlock(nn.Module):

    def __init__(self, hidden, heads):
        super().__init__()
        self.attention_norm, self.ffn_norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.attention, self.experts = Attention(hidden, heads, True), Experts(hidden, 2 * hidden, 4)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.experts(self.ffn_norm(x))


class MoeGpt(nn.Module):
    """A GPT whose layers have experts."""

    def __init__(self, vocab=96, hidden=16, heads=4, layers=2, sequence=16):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, hidden), nn.Embedding(sequence, hidden)
        self.blocks = nn.ModuleList(MoeBlock(hidden, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(hidden), nn.Linear(hidden, vocab, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


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


def _mistral():
    from transformers import MistralConfig, MistralForCausalLM
    return MistralForCausalLM(MistralConfig(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                                            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32,
                                            head_dim=8, sliding_window=5))


def _gemma2():
    # Its scores stay within a cap, and every second layer sees a window.
    from transformers import Gemma2Config, Gemma2ForCausalLM
    return Gemma2ForCausalLM(Gemma2Config(vocab_size=96, hidden_size=24, intermediate_size=48, num_hidden_layers=2,
                                          num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32,
                                          head_dim=6, query_pre_attn_scalar=6, sliding_window=6,
                                          attn_implementation="eager", pad_token_id=None,
                                          attn_logit_softcapping=2.0, final_logit_softcapping=5.0))


def _t5():
    # An encoder and a decoder whose attention has a bias that the model learns, by the distance of positions.
    from transformers import T5Config, T5ForConditionalGeneration
    return T5ForConditionalGeneration(T5Config(vocab_size=96, d_model=16, d_kv=6, d_ff=32, num_layers=2, num_heads=4,
                                               relative_attention_num_buckets=8, relative_attention_max_distance=12,
                                               dropout_rate=0))


def _gpt_neo():
    # It writes attention out, and every second layer sees a window. Two masks lie on each other.
    from transformers import GPTNeoConfig, GPTNeoForCausalLM
    return GPTNeoForCausalLM(GPTNeoConfig(vocab_size=96, hidden_size=24, num_layers=2, num_heads=4, window_size=6,
                                          attention_types=[[["global", "local"], 1]], intermediate_size=48,
                                          max_position_embeddings=32, resid_dropout=0, embed_dropout=0,
                                          attention_dropout=0, bos_token_id=0, eos_token_id=0))


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


def _resnet():
    # Its statistics are those of the whole batch: it trains without micro-batches. With two layers per stage and images
    # of 16 rows, the losses of PyTorch in f32 and in double precision are 1e-2 apart after ten steps.
    from transformers import ResNetConfig, ResNetForImageClassification
    return ResNetForImageClassification(ResNetConfig(num_channels=3, embedding_size=8, hidden_sizes=[16, 24],
                                                     depths=[1, 1], layer_type="bottleneck", num_labels=10))


def _convnext():
    from transformers import ConvNextConfig, ConvNextForImageClassification
    return ConvNextForImageClassification(ConvNextConfig(num_channels=3, patch_size=2, num_stages=2,
                                                         hidden_sizes=[8, 16], depths=[1, 2], num_labels=10))


def _whisper():
    from transformers import WhisperConfig, WhisperForConditionalGeneration
    return WhisperForConditionalGeneration(WhisperConfig(
        vocab_size=96, num_mel_bins=6, d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=32, decoder_ffn_dim=32, max_source_positions=10,
        max_target_positions=16, dropout=0, attention_dropout=0, activation_dropout=0, pad_token_id=None,
        bos_token_id=0, eos_token_id=0, decoder_start_token_id=0))


_MASKED = {"attention_mask": "bool[batch, sequence]", "ignore_index": -100}
_IMAGES = {"images": "f32[batch, channels=3, height=16, width=16]", "targets": ("batch",), "batch": BATCH}
_TEXT = {"tokens": ("batch", "sequence"), "targets": ("batch", "sequence"), "batch": BATCH, "sequence": 16}
# {name: (function that makes the model, inputs of weir.from_torch)}
MODELS = {
    "mlp": (Mlp, {"x": ("batch", "features"), "targets": "f32[batch, results]", "batch": BATCH, "features": 20,
                  "results": 4, "loss": "mse"}),
    "encoder": (Encoder, {"x": ("batch", "sequence", "features"), "targets": ("batch",), "batch": BATCH, "sequence": 6,
                          "features": 12}),
    "gpt": (Gpt, _TEXT),
    "moe": (MoeGpt, _TEXT),
    "dlrm": (Dlrm, {"dense": "f32[batch, features]", "user_ids": "i32[batch, visits=3]",
                    "item_ids": "i32[batch, seen=4]", "kind_ids": ("batch",), "targets": "f32[batch, results]",
                    "batch": BATCH, "features": 6, "results": 1, "loss": F.binary_cross_entropy_with_logits}),
    "mingpt": (lambda: MaskedGpt(lambda hidden: CausalSelfAttention(hidden, 4, 32), 32), _TEXT),
    "alibi": (lambda: MaskedGpt(lambda hidden: AlibiAttention(hidden, 4), 0), _TEXT),
    "linear_attention": (LinearEncoder, _TEXT),
    "encoder_decoder": (EncoderDecoder, {"frames": ("batch", "time", "features"), "time": 10, "features": 12, **_TEXT}),
    "gpt2": (_gpt2, _TEXT),
    "llama": (_llama, _TEXT),
    "qwen2": (_qwen2, _TEXT),
    "mistral": (_mistral, _TEXT),
    "gpt_neo": (_gpt_neo, _TEXT),
    "gemma2": (_gemma2, _TEXT),
    "t5": (_t5, {"decoder_input_ids": ("batch", "sequence"), **_TEXT}),
    "neox": (_neox, _TEXT),
    "bert": (_bert, _TEXT),
    "bert_padded": (_bert, {"tokens": ("batch", "sequence"), **_MASKED, "targets": ("batch", "sequence"),
                            "batch": BATCH, "sequence": 16}),
    "gpt2_padded": (_gpt2, {"tokens": ("batch", "sequence"), **_MASKED, "targets": ("batch", "sequence"),
                            "batch": BATCH, "sequence": 16}),
    "vit": (_vit, _IMAGES),
    "resnet": (_resnet, {**_IMAGES, "images": "f32[batch, channels=3, height=32, width=32]"}),
    "convnext": (_convnext, _IMAGES),
    "unet": (UNet, {"x": "f32[batch, channels=3, height=16, width=16]", "loss": "mse",
                    "targets": "f32[batch, results=2, height, width]", "batch": BATCH}),
    "whisper": (_whisper, {"input_features": "f32[batch, mels=6, time=20]", "decoder_input_ids": ("batch", "sequence"),
                           "targets": ("batch", "sequence"), "batch": BATCH, "sequence": 16}),
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
