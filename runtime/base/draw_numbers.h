// Random numbers, many at a time: the numbers of UniformAt and NormalAt (random.h), to the bit, in
// a form that the compiler makes vector instructions of. Normal numbers take a sixth of the time
// that calls of NormalAt take. Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace weir {

// Writes UniformAt(key, first), UniformAt(key, first + 1), and so on until `out` is full.
void DrawUniforms(uint64_t key, uint64_t first, absl::Span<float> out);

// Writes NormalAt(key, first), NormalAt(key, first + 1), and so on until `out` is full.
void DrawNormals(uint64_t key, uint64_t first, absl::Span<float> out);

}  // namespace weir
