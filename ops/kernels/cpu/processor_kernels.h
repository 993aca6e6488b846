// The results of a process's CPU kernels depend on its processor and its libraries, beside the
// operands. If two processes run one build of the program, and ProcessorKernels returns the same
// text in both, then equal operands give equal bits.
// Thread rule: pure functions.
#pragma once

#include <string>

namespace weir::kernels {

// Returns the version of oneDNN, the instructions that oneDNN and Highway use on this processor,
// and the sizes of the caches by which oneDNN cuts products into blocks:
// "oneDNN 2.6.3 with AVX512_CORE_BF16, Highway AVX3, caches of 32 and 1024 KiB".
std::string ProcessorKernels();

// Returns the vendor, the family and the name of the processor as the system tells them:
// "AuthenticAMD 25.17.1, AMD EPYC". "unknown" where it tells nothing.
std::string ProcessorModel();

}  // namespace weir::kernels
