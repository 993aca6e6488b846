// Selects the instruction sets for which the Highway kernels are compiled: AVX-512, AVX2 and the
// portable baseline. Sets between these are left out to halve the build; a machine with nothing
// above SSE4 runs the baseline. Include this header before any header of Highway.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
