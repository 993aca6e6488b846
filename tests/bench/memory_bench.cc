// Compares the memory that the plan says with the memory that the process takes, in the layouts of
// observed_memory.h.
//   tools/bench memory
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/bench/bench_gpt.h"
#include "tests/bench/bench_row.h"
#include "tests/bench/observed_memory.h"

namespace weir::bench {
namespace {

void Measure(const std::string& net, const zoo::TransformerOptions& gpt, const MemoryCase& of,
             int repeats) {
  constexpr double kMiB = 1 << 20;
  std::vector<double> planned, anonymous, resident;
  ObservedMemory observed;
  for (int i = 0; i < repeats; ++i) {
    observed = ObserveApart(gpt, of);
    planned.push_back(observed.planned / kMiB);
    anonymous.push_back(observed.anonymous / kMiB);
    resident.push_back(observed.resident / kMiB);
  }
  const std::string what = absl::StrCat(net, ", ", of.what);
  PrintRow(
      {absl::StrCat(what, ": peak"), "MiB", resident, "planned", planned, BenchRow::Better::kLower,
       1.02,
       absl::StrFormat("%+.1f MiB; with the pages of oneDNN's code, which come in at its first use",
                       resident.back() - planned.back())});
  PrintRow({absl::StrCat(what, ": data at the end"), "MiB", anonymous, "planned", planned,
            BenchRow::Better::kLower, 1.02,
            absl::StrFormat("%+.1f MiB; of the plan, %d MiB are kernels' workspaces",
                            anonymous.back() - planned.back(),
                            static_cast<int64_t>(observed.outside_arena / kMiB))});
}

}  // namespace
}  // namespace weir::bench

int main(int argc, char** argv) {
  using namespace weir::bench;
  const BenchArgs args = ParseArgs(argc, argv);
  if (args.extent == BenchArgs::Extent::kSmoke) {
    for (const MemoryCase& of : MemoryCases()) Measure("tiny GPT", TinyGpt(), of, 1);
    return 0;
  }
  Measure("medium GPT", MediumGpt(), MemoryCases()[0],
          args.Repeats(3));  // first: tools/bench puts PyTorch's beside it
  for (const MemoryCase& of : MemoryCases())
    Measure("GPT of 12 layers", DeepGpt(), of, args.Repeats(3));
}
