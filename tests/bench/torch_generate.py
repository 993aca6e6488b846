"""Generates with the GPT of torch_gpt.py and a cache of keys and values, greedily. Prints one line of JSON.

    torch_generate.py --layers 8 --hidden 256 --heads 4 --vocab 256 --sequence 256 --batch 1 --prompt 16 --tokens 128

The loop is what a user of PyTorch writes by hand: caches of their full size from the start, one position in a step, no
gradients. tools/bench runs this program in its own process and does not import it.
"""

import argparse
import json
import time

import torch
import torch.nn.functional as F
import torch_gpt


def forward(model, tokens, caches, first):
    """Returns the logits of the last position. `caches` gets the keys and values of `tokens`, from slot `first` on."""
    count = tokens.shape[1]
    x = model.tokens(tokens) + model.positions[first:first + count]
    for block, (keys, values) in zip(model.blocks, caches):
        batch, _, hidden = x.shape
        q, k, v = (y.view(batch, count, block.heads, -1).transpose(1, 2)
                   for y in block.qkv(block.attention_norm(x)).split(hidden, -1))
        keys[:, :, first:first + count] = k
        values[:, :, first:first + count] = v
        scores = q @ keys[:, :, :first + count].transpose(-1, -2) * q.shape[-1] ** -0.5
        if count > 1:
            hidden_keys = torch.ones(count, first + count, dtype=torch.bool).triu(first + 1)
            scores = scores.masked_fill(hidden_keys, float("-inf"))
        attended = torch.softmax(scores, -1) @ values[:, :, :first + count]
        x = x + block.out(attended.transpose(1, 2).reshape(batch, count, hidden))
        x = x + block.down(F.gelu(block.up(block.ffn_norm(x)), approximate="tanh"))
    return model.vocab(model.final_norm(x[:, -1]))


def generate(model, args):
    """Returns the seconds of all tokens after the first."""
    width = args.hidden // args.heads
    slots = args.prompt + args.tokens
    caches = [[torch.zeros(args.batch, args.heads, slots, width) for _ in range(2)] for _ in model.blocks]
    tokens = torch.zeros(args.batch, args.prompt, dtype=torch.long)
    first = 0
    for made in range(args.tokens):
        if made == 1:
            begin = time.monotonic()
        logits = forward(model, tokens, caches, first)
        first += tokens.shape[1]
        tokens = logits.argmax(-1, keepdim=True)
    return time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("layers", "hidden", "heads", "vocab", "sequence", "batch", "prompt", "tokens"):
        parser.add_argument("--" + name, type=int, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = torch_gpt.Gpt(args)
    with torch.no_grad():
        generate(model, args)  # the first pass pays for what PyTorch prepares
        seconds = generate(model, args)
    print(json.dumps({"version": torch.__version__, "seconds": seconds}))


if __name__ == "__main__":
    main()
