#include "tests/gpu/cuda/facts.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace weir::gpu {

void PrintFact(const std::string& fact, double value, const char* unit) {
  if (std::isfinite(value)) {
    std::printf("{\"fact\": \"%s\", \"value\": %.6g, \"unit\": \"%s\"}\n", fact.c_str(), value,
                unit);
  } else {
    std::printf("{\"fact\": \"%s\", \"value\": null, \"unit\": \"%s\"}\n", fact.c_str(), unit);
  }
  std::fflush(stdout);
}

void PrintText(const std::string& fact, const std::string& text) {
  std::string escaped;
  for (char c : text) {
    if (c == '"' || c == '\\') escaped += '\\';
    escaped += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  std::printf("{\"fact\": \"%s\", \"value\": \"%s\"}\n", fact.c_str(), escaped.c_str());
  std::fflush(stdout);
}

void CheckCuda(cudaError_t code, const char* call, const char* file, int line) {
  if (code == cudaSuccess) return;
  std::fprintf(stderr, "%s:%d: %s failed: %s (%s)\n", file, line, call, cudaGetErrorName(code),
               cudaGetErrorString(code));
  std::exit(1);
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

double ElapsedMs(cudaEvent_t begin, cudaEvent_t end) {
  float ms = 0;
  WEIR_CHECK_CUDA(cudaEventElapsedTime(&ms, begin, end));
  return ms;
}

}  // namespace weir::gpu
