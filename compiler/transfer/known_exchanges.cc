#include "compiler/transfer/known_exchanges.h"

#include "runtime/base/random.h"

namespace weir::compiler {

KnownExchanges::Known& KnownExchanges::Of(const std::vector<sbp::TensorType>& types,
                                          const std::vector<sbp::BoxingStep>& steps,
                                          const sbp::Places& places, RankId rank) {
  uint64_t key = static_cast<uint64_t>(rank.value());
  for (const sbp::BoxingStep& step : steps) key = MixKey(key, static_cast<uint64_t>(step.method));
  for (const sbp::TensorType& type : types) {
    for (const sbp::TensorDim& dim : type.dims) key = MixKey(key, static_cast<uint64_t>(dim.size));
  }
  std::list<Known>& alike = known_[key];
  for (Known& known : alike) {
    if (known.rank == rank && known.steps == steps && known.types == types) return known;
  }
  alike.push_back({types, steps, rank, sbp::BuildExchange(types, steps, places, rank), {}});
  return alike.back();
}

}  // namespace weir::compiler
