// Attention over blocks of queries and keys, with an online softmax.
