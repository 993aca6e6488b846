#include "tests/bench/bench_row.h"

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "nlohmann/json.hpp"

namespace weir::bench {
namespace {

double ReadNs(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

}  // namespace

void PrintRow(const BenchRow& row) {
  nlohmann::json json = {{"what", row.what},
                         {"unit", row.unit},
                         {"ours", row.ours},
                         {"against", row.against},
                         {"theirs", row.theirs},
                         {"better", row.better == BenchRow::Better::kLower ? "lower" : "higher"},
                         {"note", row.note}};
  if (row.limit.has_value()) json["limit"] = *row.limit;
  std::printf("%s\n", json.dump().c_str());
  std::fflush(stdout);
}

bool BenchArgs::Wants(const std::string& section) const {
  return sections.empty() || std::find(sections.begin(), sections.end(), section) != sections.end();
}

int BenchArgs::Repeats(int full) const {
  switch (extent) {
    case Extent::kFull: return full;
    case Extent::kQuick: return (full + 2) / 3;
    case Extent::kSmoke: return 1;
  }
  return full;
}

BenchArgs ParseArgs(int argc, char** argv) {
  BenchArgs args;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--quick") {
      args.extent = BenchArgs::Extent::kQuick;
    } else if (arg == "--smoke") {
      args.extent = BenchArgs::Extent::kSmoke;
    } else if (arg[0] != '-') {
      args.sections.push_back(arg);
    } else {
      std::fprintf(stderr, "%s: expected --quick, --smoke or a section; found '%s'\n", argv[0],
                   argv[i]);
      std::exit(2);
    }
  }
  return args;
}

void Must(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

double WallNs() { return ReadNs(CLOCK_MONOTONIC); }
double ThreadCpuNs() { return ReadNs(CLOCK_THREAD_CPUTIME_ID); }
double ProcessCpuNs() { return ReadNs(CLOCK_PROCESS_CPUTIME_ID); }

Pairs Alternate(int repeats, const std::function<double()>& ours,
                const std::function<double()>& theirs) {
  Pairs pairs;
  ours();
  theirs();
  for (int i = 0; i < repeats; ++i) {
    pairs.ours.push_back(ours());
    pairs.theirs.push_back(theirs());
  }
  return pairs;
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

}  // namespace weir::bench
