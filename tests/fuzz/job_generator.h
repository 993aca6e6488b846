// Makes random jobs that make sense: a model of the zoo with random options or a random graph
// (graph_generator.h), on a random mesh with odd sizes and axes longer than the tensors that they
// split, with random rules, layouts, places of calls, schedule, ZeRO stage, micro-batches,
// precision and rules of it, recomputation, registers, updates, optimisers, groups of parameters
// and averages. Most jobs compile. The others ask for something that a layout or a schedule
// forbids. Thread rule: pure function of the seed.
#pragma once

#include <cstdint>

#include "proto/job.pb.h"

namespace weir::fuzz {

// Meshes have at most this many devices, one in fifty up to the second number.
inline constexpr int64_t kDevicesOften = 48;
inline constexpr int64_t kDevicesMax = 360;

// The same seed makes the same job.
proto::Job GenerateJob(uint64_t seed);

}  // namespace weir::fuzz
