// The limit of a loss scale that adapts, which kernels and the trainer share. Thread rule: values.
#pragma once

namespace weir {

// Gradients that are not finite although the loss is finite overflow because of the loss scale,
// unless the scale is below this number: then they are wrong, and no smaller scale helps.
inline constexpr float kOverflowScaleLeast = 0x1p-20f;

}  // namespace weir
