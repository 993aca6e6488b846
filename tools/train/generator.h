// Continues a text with a trained language model over bytes, on one device. Each token runs the
// whole window again, because there is no cache of keys and values.
// Thread rule: one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "tools/train/job_session.h"

namespace weir::train {

struct GenerateOptions {
  std::string init;           // safetensors of weights; empty: first values (noise)
  std::string job_file;       // where a map of weights may lie; empty: nowhere
  std::string prompt = "\n";  // bytes; must not be empty
  int64_t tokens = 200;
  double temperature = 0.8;  // 0: always the likeliest
  uint64_t seed = 1;
  int threads = 0;  // 0: all cores
  const std::atomic<bool>* interrupted = nullptr;
};

// Calls `emit` for each new byte, in order. The text is a function of weights, prompt,
// temperature and seed.
absl::Status Generate(const proto::Job& job, const GenerateOptions& options,
                      const std::function<void(char)>& emit);

// Draws a token from `logits` with random number `uniform` in [0, 1): the likeliest token if
// temperature is 0, else by softmax(logits / temperature). Returns -1 if a logit is not a number.
int64_t SampleToken(const std::vector<float>& logits, double temperature, double uniform);

}  // namespace weir::train
