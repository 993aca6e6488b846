"""Counts the arithmetic of a language model, so that rates of different programs compare.

The count is that of PaLM (Chowdhery et al., 2022, appendix B): a token costs 6 N + 12 L H T operations on numbers. N
counts the parameters without the table of positions, L the layers, H the width of the residual stream, and T the tokens
of a sample. The attention counts as if it were not causal, and what is computed again counts once.
"""

H100_BF16_PEAK = 989e12  # dense bf16 operations per second of an H100 SXM, by NVIDIA's data sheet


def gpt2_parameters(layers, hidden, vocab):
    """Returns the number of parameters of a GPT-2 with a tied table, without the table of positions."""
    block = 12 * hidden * hidden + 13 * hidden
    return layers * block + vocab * hidden + 2 * hidden


def per_token(parameters, layers, hidden, sequence):
    """Returns the floating-point operations that training needs for one token."""
    return 6 * parameters + 12 * layers * hidden * sequence


def utilisation(tokens_per_second, parameters, layers, hidden, sequence, peak=H100_BF16_PEAK):
    """Returns the share of the peak that a rate of tokens amounts to (MFU)."""
    return tokens_per_second * per_token(parameters, layers, hidden, sequence) / peak


class Size:
    """The sizes of a GPT-2, and the batch that a check trains it with."""

    def __init__(self, layers, hidden, heads, vocab=50304, sequence=1024, batch=64, micro_batch=16):
        self.layers = layers
        self.hidden = hidden
        self.heads = heads
        self.vocab = vocab
        self.sequence = sequence
        self.batch = batch
        self.micro_batch = micro_batch

    @property
    def parameters(self):
        return gpt2_parameters(self.layers, self.hidden, self.vocab)

    @property
    def tokens(self):
        """Tokens of a step."""
        return self.batch * self.sequence

    def utilisation(self, tokens_per_second):
        return utilisation(tokens_per_second, self.parameters, self.layers, self.hidden, self.sequence)


# The vocabulary of GPT-2, 50,257 tokens, is rounded up to a multiple of 64, as tensor cores want it.
GPT2 = {
    "124M": Size(12, 768, 12),
    "355M": Size(24, 1024, 16, batch=32, micro_batch=16),
    "1.5B": Size(48, 1600, 25, batch=16, micro_batch=4),
    "tiny": Size(2, 32, 2, vocab=64, sequence=16, batch=2, micro_batch=1),
}
