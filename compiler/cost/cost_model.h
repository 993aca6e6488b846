// The expected times of acts and transfers. The compiler uses these times to plan start times and
// register counts without a device. A cost model describes the machine and does not measure the
// job: a plan from a wrong model is slower, never wrong. A model is deterministic, because every
// rank plans for itself and all ranks must find the same times. Thread rule: immutable after
// construction.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ops/defs/op_def.h"
#include "runtime/base/ids.h"
#include "runtime/base/tensor_slice.h"

namespace weir::compiler {

// One kernel at the shapes of one rank. Absent operands have the shape [0].
struct KernelUse {
  const std::string& op;
  const Attributes& attrs;
  std::vector<TensorSlice> inputs;
  std::vector<TensorSlice> outputs;
};

// The two levels of links: two ranks share a host, or they do not.
enum class LinkLevel : uint8_t { kWithinHost, kBetweenHosts };

// Who shares a link: a pair of devices has a link of its own, a device has one way out and one way
// in, or the devices of a host share one way out and one way in.
enum class LinkSharing : uint8_t { kPair, kDevice, kHost };

class CostModel {
 public:
  virtual ~CostModel() = default;
  // Returns the time of the kernel alone, without the fixed cost of an act. 0 or more.
  virtual int64_t KernelNs(const KernelUse& kernel) const = 0;
  // Returns the cost of an act besides its kernels: choosing the act, launching, publishing.
  virtual int64_t ActNs() const = 0;
  // Returns the time from the end of the act that writes a message of `bytes` bytes until the
  // reader of the message may begin. A credit takes as long on its way back.
  virtual int64_t LatencyNs(LinkLevel level, int64_t bytes) const = 0;
  virtual LinkLevel LevelBetween(RankId rank, RankId other) const = 0;
  // Messages that share a link pass one after another.
  virtual LinkSharing SharingOf(LinkLevel) const { return LinkSharing::kPair; }
};

// A device described by its peaks: a kernel takes the longer of its arithmetic and its memory
// traffic.
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

// A cost model from DevicePeaks. The default peaks describe a core of a present-day server and its
// shared memory.
class PeakCosts : public CostModel {
 public:
  explicit PeakCosts(DevicePeaks model = {}) : model_(std::move(model)) {}
  int64_t KernelNs(const KernelUse& kernel) const override;
  int64_t ActNs() const override { return model_.act_ns; }
  int64_t LatencyNs(LinkLevel level, int64_t bytes) const override;
  LinkLevel LevelBetween(RankId rank, RankId other) const override {
    return rank.value() / model_.devices_per_host == other.value() / model_.devices_per_host
               ? LinkLevel::kWithinHost
               : LinkLevel::kBetweenHosts;
  }

 private:
  DevicePeaks model_;
};

}  // namespace weir::compiler
