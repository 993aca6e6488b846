// The most arithmetic that the devices of a job can do, against which model flops utilisation (MFU)
// is told. Thread rule: a value.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace weir::train {

struct PeakArithmetic {
  double flops_per_second = 0;  // of all devices together; 0: not known
  std::string from;             // where it is from, or what would tell it, for people
};

// The devices of a job, once its ranks are loaded.
struct DevicesInUse {
  int64_t ranks = 1;
  int threads_per_device = 1;
  int hosts = 1;
};

using FindPeak = std::function<PeakArithmetic(const DevicesInUse& devices)>;

}  // namespace weir::train
