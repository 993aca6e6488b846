#include "compiler/lower/place_memory.h"

#include <algorithm>

#include "runtime/base/dtype.h"

namespace weir::compiler {
namespace {

constexpr int64_t kAlignment = 64;
int64_t Align(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

int64_t BytesOf(const TensorSliceProto& slice) {
  int64_t bytes = SizeOf(DTypeFromName(slice.dtype()).value_or(DType::kF32));
  for (int64_t size : slice.shape()) bytes *= size;
  return bytes;
}

}  // namespace

void PlaceMemory(const std::vector<StateHome>& homes, RankPlan* plan) {
  int64_t scratch = 0;
  for (const Program& program : plan->program()) scratch = std::max(scratch, program.scratch_bytes());
  plan->set_scratch_bytes(scratch);
  int64_t at = Align(scratch);
  for (RegisterSpec& spec : *plan->mutable_registers()) {
    if (spec.side() == RegisterSpec::OUTBOUND) continue;
    spec.set_arena_offset(at);
    spec.set_stride(Align(spec.bytes()));
    at += spec.stride() * spec.slots();
  }
  for (size_t i = 0; i < homes.size(); ++i) {
    StateSpec* state = plan->mutable_state(static_cast<int>(i));
    if (homes[i].register_id >= 0) {
      state->set_arena_offset(plan->registers(homes[i].register_id).arena_offset() + homes[i].offset);
      continue;
    }
    state->set_arena_offset(at);
    at += Align(BytesOf(state->slice()));
  }
  plan->set_arena_bytes(at);
}

}  // namespace weir::compiler
