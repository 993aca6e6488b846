#include "actors/engine/finite_watch.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "actors/plan/certificate.h"
#include "runtime/base/finite.h"

namespace weir::actors {
namespace {

// States come before all acts, and values that merely arrived come last.
auto OrderOf(const NonfiniteFinding& finding) {
  const int kind = finding.origin == NonfiniteFinding::Origin::kState     ? 0
                   : finding.origin == NonfiniteFinding::Origin::kArrived ? 2
                                                                          : 1;
  return std::make_tuple(kind, finding.start_ns, finding.rank);
}

// A maximum over no elements is minus infinity by definition.
bool ReadsNothing(const PlanCall& call) {
  return !call.inputs.empty() &&
         std::all_of(call.inputs.begin(), call.inputs.end(), [](const PlanOperand& operand) {
           return operand.place == PlanOperand::Place::kNone || operand.slice.num_elements() == 0;
         });
}

}  // namespace

std::string NonfiniteText(DType dtype, const void* data, int64_t count) {
  const NonfiniteCount found = CountNonfinite(dtype, data, count);
  if (found.first < 0) return "";
  std::string text;
  if (found.nans > 0) text = absl::StrCat(found.nans, " NaN");
  if (found.infinities > 0)
    absl::StrAppend(&text, text.empty() ? "" : " and ", found.infinities, " infinite");
  return absl::StrCat(text, " of ", count, count == 1 ? " value" : " values, the first at index ",
                      count == 1 ? "" : absl::StrCat(found.first));
}

std::optional<NonfiniteFinding> FirstOf(const std::vector<NonfiniteFinding>& findings) {
  auto first = std::min_element(
      findings.begin(), findings.end(),
      [](const NonfiniteFinding& a, const NonfiniteFinding& b) { return OrderOf(a) < OrderOf(b); });
  return first == findings.end() ? std::nullopt : std::make_optional(*first);
}

void FiniteWatch::BeginAct(const PlanActor& actor, int64_t act, int64_t micro_batch,
                           int64_t chunk) {
  actor_ = &actor;
  micro_batch_ = micro_batch;
  start_ns_ = PlannedStartNs(*plan_, actor, act);
  const bool found_earlier =
      first_.has_value() && OrderOf(*first_) < std::make_tuple(1, start_ns_, plan_->rank);
  // A SEND only copies, so the watch skips it. The result of a transfer is whole after the last
  // chunk; before that, the slot still holds bytes of an earlier token.
  looks_ = !found_earlier && actor.kind != ActorKind::kSend &&
           actor.kind != ActorKind::kCollective && chunk == actor.chunks - 1;
}

device::HostView FiniteWatch::View(const PlanOperand& operand, const void* at) const {
  return memory_->View(static_cast<const char*>(at), operand.slice.bytes());
}

bool FiniteWatch::IsFinite(const PlanOperand& operand, const void* at) const {
  return operand.place == PlanOperand::Place::kNone || at == nullptr ||
         AllFinite(operand.slice.dtype, View(operand, at).data(), operand.slice.num_elements());
}

void FiniteWatch::BeforeCall(size_t call, const kernels::KernelArgs& args) {
  if (!looks_) return;
  const PlanCall& plan = plan_->programs[actor_->program].calls[call];
  inputs_finite_ = true;
  for (size_t i = 0; i < plan.inputs.size() && inputs_finite_; ++i)
    inputs_finite_ = IsFinite(plan.inputs[i], args.inputs[i]);
  // A kernel that adds to its output reads the output, too.
  if (inputs_finite_ && args.span_act > 0 && !plan.outputs.empty())
    inputs_finite_ = IsFinite(plan.outputs[0], args.outputs[0]);
}

void FiniteWatch::AfterCall(size_t call, const kernels::KernelArgs& args) {
  if (!looks_) return;
  const PlanCall& plan = plan_->programs[actor_->program].calls[call];
  if (ReadsNothing(plan)) return;
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    if (IsFinite(plan.outputs[i], args.outputs[i])) continue;
    Note(inputs_finite_ ? NonfiniteFinding::Origin::kKernel : NonfiniteFinding::Origin::kArrived,
         start_ns_,
         absl::StrCat(ActText(), ": call ", plan.name,
                      plan.name == plan.op ? "" : absl::StrCat(" (", plan.op, ")"),
                      plan.outputs.size() > 1 ? absl::StrCat(", output ", i) : ""),
         plan.outputs[i].slice, View(plan.outputs[i], args.outputs[i]).data());
    // The rest of the act follows from this finding.
    if (inputs_finite_) looks_ = false;
    return;
  }
}

void FiniteWatch::AfterFeed(const void* data) {
  if (!looks_ || AllFinite(actor_->feed_slice.dtype, data, actor_->feed_slice.num_elements()))
    return;
  Note(NonfiniteFinding::Origin::kFeed, start_ns_,
       absl::StrCat(ActText(), ": input ", actor_->feed, " of the data"), actor_->feed_slice, data);
}

void FiniteWatch::LookAtState(const PlanState& state, const void* data) {
  if (AllFinite(state.slice.dtype, data, state.slice.num_elements())) return;
  Note(NonfiniteFinding::Origin::kState, 0,
       absl::StrCat("rank ", plan_->rank, ", before the step: state ", state.name), state.slice,
       data);
}

void FiniteWatch::Note(NonfiniteFinding::Origin origin, int64_t start_ns, const std::string& where,
                       const TensorSlice& slice, const void* data) {
  NonfiniteFinding finding{plan_->rank, origin, start_ns, ""};
  if (first_.has_value() && OrderOf(*first_) <= OrderOf(finding)) return;
  finding.text = absl::StrCat(where, ", ", Name(slice.dtype), ToText(slice.shape), ": ",
                              NonfiniteText(slice.dtype, data, slice.num_elements()));
  first_ = std::move(finding);
}

std::string FiniteWatch::ActText() const {
  return absl::StrCat("rank ", plan_->rank, ", ", actor_->name, ", micro-batch ", micro_batch_);
}

}  // namespace weir::actors
