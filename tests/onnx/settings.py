"""The training of the fixtures, which PyTorch and Weir share."""

STEPS = 20
SEED = 4
RATE, BETAS, EPSILON, WEIGHT_DECAY = 3e-3, (0.9, 0.99), 1e-8, 0.1
CLASSES = 10
VOCABULARY = 40
SIZES = {"batch": 8, "sequence": 12}
