// Dropout keyed by element position.
