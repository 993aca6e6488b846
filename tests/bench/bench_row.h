// A BenchRow is one line of `tools/bench`: the quantity, the samples, and the figure that the
// samples are compared with. A bench prints rows as JSON, one row on a line, and bench_report.py
// makes the table. Not here: medians and verdicts. Thread rule: values; PrintRow and the clocks
// from any thread, PrintRow one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weir::bench {

struct BenchRow {
  std::string what;
  std::string unit;  // "ns", "GFLOP/s", "MiB"
  std::vector<double> ours;
  // The divisor of ours: a name, and either as many samples as ours, taken in turn with ours, or a
  // single number (a budget).
  std::string against;
  std::vector<double> theirs;
  enum class Better : uint8_t { kLower, kHigher } better = Better::kLower;
  std::optional<double> limit;  // for the median ratio; none: for information
  std::string note;
};

void PrintRow(const BenchRow& row);

// The amount of measuring. On the command line `--quick` lowers the number of repeats. `--smoke`
// lowers everything, so that a section ends within seconds; its figures mean nothing and only test
// that the section runs. Any other flag ends the program.
struct BenchArgs {
  enum class Extent : uint8_t { kFull, kQuick, kSmoke } extent = Extent::kFull;
  std::vector<std::string> sections;  // empty: all
  bool Wants(const std::string& section) const;
  int Repeats(int full) const;
  // Returns the size of a measured object: `smoke` with --smoke, else `full`.
  template <typename T>
  T Sized(T full, T smoke) const {
    return extent == Extent::kSmoke ? smoke : full;
  }
};
BenchArgs ParseArgs(int argc, char** argv);

// Ends the program with the message unless `status` is ok.
void Must(const absl::Status& status);
template <typename T>
T Must(absl::StatusOr<T> value) {
  Must(value.status());
  return *std::move(value);
}

double WallNs();
double ThreadCpuNs();   // of the calling thread: other programs do not count
double ProcessCpuNs();  // of all threads of this process

// Calls ours, theirs, ours, theirs ...; each call returns its sample. The first pair does not
// count.
struct Pairs {
  std::vector<double> ours;
  std::vector<double> theirs;
};
Pairs Alternate(int repeats, const std::function<double()>& ours,
                const std::function<double()>& theirs);

double Median(std::vector<double> values);

}  // namespace weir::bench
