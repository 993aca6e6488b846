// Which instruction sets the Highway kernels are compiled for: AVX-512, AVX2 and the
// portable baseline. Those between are left out to halve the build; a machine with
// nothing above SSE4 runs the baseline. Included before anything of Highway.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
