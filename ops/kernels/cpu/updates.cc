// The ops of ops/defs/optimizer.cc on a CPU. ops/kernels/shape/update_maps.h has the arithmetic.
#include <memory>

#include "ops/kernels/kernel.h"
#include "ops/kernels/shape/pieces.h"
#include "ops/kernels/shape/update_ops.h"

namespace weir::kernels {
namespace {

template <typename Update>
class UpdateKernel final : public Kernel {
 public:
  explicit UpdateKernel(const KernelSpec& spec)
      : update_(spec), pieces_{spec.outputs[0]->num_elements(), kLightPiece} {}

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    const auto map = update_.At(args);
    if (!map.has_value()) return absl::OkStatus();
    typename std::decay_t<decltype(*map)>::Now now;
    if (!map->Begin(&now)) return absl::OkStatus();
    launch.team->For(pieces_.count(), [&](int64_t piece) {
      CallForRange(*map, now, pieces_.begin(piece), pieces_.end(piece));
    });
    return absl::OkStatus();
  }

 private:
  const Update update_;
  const Pieces pieces_;
};

template <typename Update>
absl::StatusOr<std::unique_ptr<Kernel>> Make(const KernelSpec& spec) {
  if (absl::Status status = Update::Check(spec); !status.ok()) return status;
  return std::make_unique<UpdateKernel<Update>>(spec);
}

[[maybe_unused]] const bool registered = [] {
  ForEachUpdate([](const char* op, auto type) {
    KernelRegistry::Register("cpu", op, &Make<typename decltype(type)::type>);
  });
  return true;
}();

}  // namespace
}  // namespace weir::kernels
