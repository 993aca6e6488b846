// Gradient of attention over blocks of queries and keys.
