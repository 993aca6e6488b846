// Random models: a graph of ops whose shapes fit, in one or several functions, called once or many
// times. What a person could have written, and mostly would not. Thread rule: pure function of the
// random numbers.
#pragma once

#include <random>

#include "proto/graph.pb.h"

namespace weir {

// A graph with the loss "loss", whose ids and targets are below 2. Dimensions named batch,
// sequence, hidden, inner, heads, head_dim, vocab; sizes from 1 to 12.
Graph GenerateGraph(std::mt19937_64* random);

}  // namespace weir
