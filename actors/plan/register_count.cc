#include "actors/plan/register_count.h"

namespace weir::actors {
namespace {

EndCount Count(const Rate& rate, const Span& span, int64_t step) {
  const int64_t acts = rate.ActsBefore(step);
  return {span.TokensTaken(acts), span.TokensGivenUp(acts)};
}

EndCount Untold(const PlanRegister& r, int64_t step) {
  return {r.tokens_per_step * (step / r.every), r.tokens_per_step * (step / r.every)};
}

}  // namespace

EndCount ProducerAt(const Plan& plan, const PlanRegister& r, int64_t step) {
  if (r.side != RegisterSide::kInbound) {
    const PlanActor& actor = plan.actors[r.producer.actor];
    return Count(actor, actor.outputs[r.producer.port], step);
  }
  return r.far.empty() ? Untold(r, step) : Count(r.far[0], r.far[0].port, step);
}

EndCount ConsumerAt(const Plan& plan, const PlanRegister& r, int k, int64_t step) {
  if (r.side != RegisterSide::kOutbound) {
    const PlanActor& actor = plan.actors[r.consumers[k].actor];
    return Count(actor, actor.inputs[r.consumers[k].port], step);
  }
  return r.far.empty() ? Untold(r, step) : Count(r.far[k], r.far[k].port, step);
}

int NumConsumers(const PlanRegister& r) {
  if (r.side != RegisterSide::kOutbound) return static_cast<int>(r.consumers.size());
  return std::max<int>(1, static_cast<int>(r.far.size()));
}

RegisterCount CountAt(const Plan& plan, const PlanRegister& r, int64_t step) {
  const EndCount producer = ProducerAt(plan, r, step);
  RegisterCount count;
  count.taken = producer.taken;
  count.published = count.released = r.initial_tokens + producer.given_up;
  for (int k = 0; k < NumConsumers(r); ++k) {
    count.released = std::min(count.released, ConsumerAt(plan, r, k, step).given_up);
  }
  return count;
}

}  // namespace weir::actors
