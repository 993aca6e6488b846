// What acts and transfers are expected to take, so that times and register counts can be planned
// without a device. A model of the machine, not a measurement of the job: plans that rest on a
// wrong model are slower, never wrong. Deterministic, as every rank plans for itself and all must
// come to the same times. Thread rule: immutable after construction.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ops/defs/op_def.h"
#include "runtime/base/tensor_slice.h"

namespace weir::compiler {

// One kernel at the shapes that a rank has. Absent operands are of shape [0].
struct KernelUse {
  const std::string& op;
  const Attributes& attrs;
  std::vector<TensorSlice> inputs;
  std::vector<TensorSlice> outputs;
};

// Whether two ranks share a host: links are of two levels.
enum class LinkLevel : uint8_t { kWithinHost, kBetweenHosts };

class CostModel {
 public:
  virtual ~CostModel() = default;
  // The kernel alone, without what every act costs. 0 or more.
  virtual int64_t KernelNs(const KernelUse& kernel) const = 0;
  // What an act costs besides its kernels: choosing it, launching, publishing.
  virtual int64_t ActNs() const = 0;
  // From the end of the act that writes a message of so many bytes until its reader may begin, and
  // for a credit back.
  virtual int64_t LatencyNs(LinkLevel level, int64_t bytes) const = 0;
  virtual LinkLevel LevelBetween(int64_t rank, int64_t other) const = 0;
};

// A device by its peaks: a kernel takes the longer of its arithmetic and its traffic with memory.
struct DevicePeaks {
  double flops_per_second = 4e10;
  double memory_bytes_per_second = 1e10;
  int64_t kernel_ns = 500;
  int64_t act_ns = 5'000;
  struct Link {
    int64_t latency_ns = 5'000;
    double bytes_per_second = 4e9;
  };
  Link within_host;
  Link between_hosts{20'000, 1e9};
  int64_t devices_per_host = 8;
};

// The defaults of DevicePeaks are a core of a present-day server and its shared memory.
class PeakCosts : public CostModel {
 public:
  explicit PeakCosts(DevicePeaks model = {}) : model_(std::move(model)) {}
  int64_t KernelNs(const KernelUse& kernel) const override;
  int64_t ActNs() const override { return model_.act_ns; }
  int64_t LatencyNs(LinkLevel level, int64_t bytes) const override;
  LinkLevel LevelBetween(int64_t rank, int64_t other) const override {
    return rank / model_.devices_per_host == other / model_.devices_per_host
               ? LinkLevel::kWithinHost
               : LinkLevel::kBetweenHosts;
  }

 private:
  DevicePeaks model_;
};

}  // namespace weir::compiler
