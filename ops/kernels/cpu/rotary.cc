// Rotary position embedding.
