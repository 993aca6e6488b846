// Makes random models: a graph of ops whose shapes fit, in one or several functions, called once or
// many times. A person could have written such a model, but mostly would not. Thread rule: pure
// function of the random numbers.
#pragma once

#include <random>

#include "proto/graph.pb.h"

namespace weir::fuzz {

// Returns a graph with the loss "loss", whose ids and targets are below 2. Dimensions have the
// names batch, sequence, hidden, inner, heads, head_dim, vocab, and sizes from 1 to 12.
proto::Graph GenerateGraph(std::mt19937_64* random);

}  // namespace weir::fuzz
