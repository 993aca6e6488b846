#include "actors/plan/certificate.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "actors/plan/register_count.h"
#include "runtime/base/floor_div.h"
#include "runtime/base/plan_limits.h"
#include "runtime/base/random.h"
#include "runtime/base/status.h"

namespace weir::actors {
namespace {

using plan_limits::kTimeMax;
// A bound on the checks of all edges: a plan that needs more is an attack.
constexpr int64_t kChecksMax = int64_t{1} << 31;

// ActTimes are the start times of one actor; the plan of these times lives longer. The formulas
// of Timing stand here once more, because the compiler's check uses Timing.
class ActTimes {
 public:
  ActTimes(const Rate& rate, const PlanTiming& timing, const PlanRhythm& rhythm)
      : rate_(rate),
        timing_(timing),
        rhythm_(rhythm),
        acts_per_iteration_(rate.ActsIn(rhythm.steps_per_iteration)) {}

  // Returns the start of an act of any iteration; acts before step 0 have negative numbers.
  int64_t StartOf(int64_t act) const {
    if (!timing_.act_start_ns.empty()) {
      const int64_t iteration = FloorDiv(act, acts_per_iteration_);
      return iteration * rhythm_.iteration_ns +
             timing_.act_start_ns[act - iteration * acts_per_iteration_];
    }
    const int64_t before = FloorDiv(act, rate_.acts_per_step);  // steps in which the actor acts
    const int64_t k = act - before * rate_.acts_per_step;
    const int64_t step = before * rate_.every + rate_.every_phase;
    const int64_t iteration = FloorDiv(step, rhythm_.steps_per_iteration);
    int64_t at = iteration * rhythm_.iteration_ns + timing_.start_ns +
                 (step - iteration * rhythm_.steps_per_iteration) * rhythm_.step_ns;
    return rate_.chunks == 1 ? at + k * timing_.micro_batch_stride_ns
                             : at + (k / rate_.chunks) * timing_.micro_batch_stride_ns +
                                   (k % rate_.chunks) * timing_.chunk_stride_ns;
  }
  int64_t EndOf(int64_t act) const { return StartOf(act) + timing_.time_ns; }

  // Returns the time from the start of a step's first act to the end of its last act; the value is
  // bounded even if every time is the largest.
  __int128 StepLength() const {
    const __int128 micro_batches = rate_.micro_batches_per_step();
    return (micro_batches - 1) * timing_.micro_batch_stride_ns +
           static_cast<__int128>(rate_.chunks - 1) * timing_.chunk_stride_ns + timing_.time_ns;
  }
  bool by_formula() const { return timing_.act_start_ns.empty(); }
  int64_t acts_per_iteration() const { return acts_per_iteration_; }

 private:
  const Rate& rate_;
  const PlanTiming& timing_;
  const PlanRhythm& rhythm_;
  const int64_t acts_per_iteration_;
};

// An End is one end of a register.
struct End {
  const std::string& name;
  const Rate& rate;
  const PlanPort& port;
  ActTimes times;

  int64_t FirstAct(int64_t token) const { return token / port.tokens * port.period - port.phase; }
  int64_t LastAct(int64_t token) const { return FirstAct(token) + port.period - 1; }
  // Returns whether every step has the same spans.
  bool SameEachStep() const {
    return rate.every == 1 && rate.acts_per_step % port.period == 0 && times.by_formula();
  }
  bool even() const { return port.period == 1 && port.tokens == 1 && SameEachStep(); }
};

class Checker {
 public:
  explicit Checker(const Plan& plan) : plan_(plan) {}

  absl::Status Check() {
    if (plan_.rhythm.iteration_ns == 0 && !plan_.actors.empty()) {
      return Rejected({"W0541", absl::StrCat("plan of rank ", plan_.rank),
                       "a certificate: when every act starts", "none",
                       "let the compiler of this version write the plan"});
    }
    for (const PlanActor& actor : plan_.actors) WEIR_RETURN_IF_ERROR(CheckActor(actor));
    for (const PlanRegister& r : plan_.registers) WEIR_RETURN_IF_ERROR(CheckRegister(r));
    for (const PlanStream& stream : plan_.streams) WEIR_RETURN_IF_ERROR(CheckStream(stream));
    return absl::OkStatus();
  }

 private:
  absl::Status TooLong(const std::string& name) const {
    return Rejected({"W0508", absl::StrCat("plan of rank ", plan_.rank, ", actor '", name, "'"),
                     absl::StrCat("acts of a step within ", kTimeMax, " ns"), "more", ""});
  }
  // Returns the error that act `act` of `after` starts before `ready`, the time when act `needed`
  // of `before` has done its part.
  absl::Status TooEarly(const std::string& where, const std::string& after, int64_t act,
                        int64_t start, const std::string& before, int64_t needed, int64_t ready,
                        const std::string& why) const {
    return Rejected(
        {"W0509", absl::StrCat("plan of rank ", plan_.rank, ", ", where),
         absl::StrCat("act ", act, " of '", after, "' to start at ", ready,
                      " ns or later, when act ", needed, " of '", before, "' has ", why),
         absl::StrCat(start, " ns"),
         "let the compiler write the plan again; a plan changed by hand needs times that fit it"});
  }

  absl::Status CheckActor(const PlanActor& actor);
  absl::Status CheckRegister(const PlanRegister& r);
  absl::Status CheckEdge(const PlanRegister& r, const End& producer, const End& consumer);
  absl::Status CheckToken(const PlanRegister& r, const End& producer, const End& consumer,
                          int64_t token);
  absl::Status CheckSlot(const PlanRegister& r, const End& producer, const End& consumer,
                         int64_t token);
  absl::Status CheckStream(const PlanStream& stream);

  const Plan& plan_;
  int64_t checks_left_ = kChecksMax;
};

absl::Status Checker::CheckActor(const PlanActor& actor) {
  const ActTimes times(actor, actor.timing, plan_.rhythm);
  const PlanRhythm& rhythm = plan_.rhythm;
  const auto overlap = [&](int64_t act, const char* what) {
    return TooEarly(absl::StrCat("actor '", actor.name, "'"), actor.name, act, times.StartOf(act),
                    actor.name, act - 1, times.EndOf(act - 1), what);
  };
  if (!times.by_formula()) {
    for (int64_t act = 1; act <= times.acts_per_iteration(); ++act) {
      if (times.StartOf(act) < times.EndOf(act - 1)) return overlap(act, "ended");
    }
    return absl::OkStatus();
  }
  if (times.StepLength() > kTimeMax) return TooLong(actor.name);
  const int64_t length = static_cast<int64_t>(times.StepLength());
  if (actor.chunks > 1 && actor.timing.chunk_stride_ns < actor.timing.time_ns)
    return overlap(1, "ended");
  if (actor.acts_per_step > actor.chunks &&
      actor.timing.micro_batch_stride_ns <
          (actor.chunks - 1) * actor.timing.chunk_stride_ns + actor.timing.time_ns) {
    return overlap(actor.chunks, "ended");
  }
  const int64_t between = actor.every * rhythm.step_ns;
  if (actor.every < rhythm.steps_per_iteration && between < length)
    return overlap(actor.acts_per_step, "ended");
  if (rhythm.iteration_ns - (rhythm.steps_per_iteration - actor.every) * rhythm.step_ns < length) {
    return overlap(times.acts_per_iteration(), "ended");
  }
  return absl::OkStatus();
}

absl::Status Checker::CheckRegister(const PlanRegister& r) {
  const bool here = r.side != RegisterSide::kInbound, there = r.side != RegisterSide::kOutbound;
  if (r.side != RegisterSide::kLocal && r.far.empty()) {
    return Rejected({"W0541",
                     absl::StrCat("plan of rank ", plan_.rank, ", register '", r.name, "'"),
                     absl::StrCat("when the actor on rank ", r.peer, " acts"), "nothing",
                     "let the compiler of this version write the plan"});
  }
  for (const PlanFarActor& far : r.far) {
    const ActTimes times(far, far.timing, plan_.rhythm);
    if (times.by_formula() && times.StepLength() > kTimeMax) return TooLong(far.name);
  }
  const auto far = [&](int k) -> End {
    return {r.far[k].name, r.far[k], r.far[k].port,
            ActTimes(r.far[k], r.far[k].timing, plan_.rhythm)};
  };
  const auto near = [&](const PlanActor& actor, const PlanPort& port) -> End {
    return {actor.name, actor, port, ActTimes(actor, actor.timing, plan_.rhythm)};
  };
  const End producer = here ? near(plan_.actors[r.producer.actor],
                                   plan_.actors[r.producer.actor].outputs[r.producer.port])
                            : far(0);
  for (int k = 0; k < NumConsumers(r); ++k) {
    if (there) {
      const PlanActor& actor = plan_.actors[r.consumers[k].actor];
      WEIR_RETURN_IF_ERROR(CheckEdge(r, producer, near(actor, actor.inputs[r.consumers[k].port])));
    } else {
      WEIR_RETURN_IF_ERROR(CheckEdge(r, producer, far(k)));
    }
  }
  return absl::OkStatus();
}

absl::Status Checker::CheckEdge(const PlanRegister& r, const End& producer, const End& consumer) {
  // Where steps follow each other at one distance, steps that have the same spans at both ends are
  // alike.
  const PlanRhythm& rhythm = plan_.rhythm;
  const bool even_steps = rhythm.steps_per_iteration == 1 ||
                          rhythm.iteration_ns == rhythm.steps_per_iteration * rhythm.step_ns;
  const bool alike =
      even_steps && r.every == 1 && producer.SameEachStep() && consumer.SameEachStep();
  const int64_t tokens = r.tokens_per_step * (alike ? 1 : rhythm.steps_per_iteration / r.every);
  const auto check = [&](int64_t from, int64_t to) -> absl::Status {
    for (int64_t token = from; token < to; ++token) {
      WEIR_RETURN_IF_ERROR(CheckToken(r, producer, consumer, token));
      WEIR_RETURN_IF_ERROR(CheckSlot(r, producer, consumer, token));
    }
    return absl::OkStatus();
  };
  const int64_t chunks = producer.rate.chunks;
  if (alike && producer.even() && consumer.even() && chunks == consumer.rate.chunks) {
    // Where both ends are even, the slack of an edge is linear over the chunks of a micro-batch,
    // but breaks where the other end goes on to its next micro-batch. Checks of the chunks beside
    // the break, the first chunk and the last chunk therefore suffice.
    const int64_t lag = r.initial_tokens % tokens, lead = (r.slots - r.initial_tokens) % tokens;
    const int64_t breaks[] = {0, lag % chunks, (chunks - lead % chunks) % chunks, chunks};
    const auto check_micro_batches = [&](int64_t from, int64_t to) -> absl::Status {
      for (int64_t k = std::max<int64_t>(0, from); k < std::min(to, tokens / chunks); ++k) {
        for (int64_t chunk : breaks) {
          const int64_t begin = k * chunks;
          WEIR_RETURN_IF_ERROR(
              check(begin + std::max<int64_t>(0, chunk - 1), begin + std::min(chunks, chunk + 1)));
        }
      }
      return absl::OkStatus();
    };
    if (tokens <= 8 * chunks) return check_micro_batches(0, tokens / chunks);
    // The slack is also linear from micro-batch to micro-batch, but breaks at the two tokens where
    // one of the ends begins its step.
    WEIR_RETURN_IF_ERROR(check_micro_batches(0, 1));
    WEIR_RETURN_IF_ERROR(check_micro_batches(tokens / chunks - 1, tokens / chunks));
    if (lag > 0) WEIR_RETURN_IF_ERROR(check_micro_batches(lag / chunks - 1, lag / chunks + 2));
    const int64_t wrap = tokens - lead;
    if (lead > 0) WEIR_RETURN_IF_ERROR(check_micro_batches(wrap / chunks - 1, wrap / chunks + 2));
    return absl::OkStatus();
  }
  checks_left_ -= tokens;
  if (checks_left_ < 0) {
    return Rejected(
        {"W0508", absl::StrCat("plan of rank ", plan_.rank, ", register '", r.name, "'"),
         absl::StrCat("at most ", kChecksMax, " tokens of an iteration, all registers together"),
         "more", ""});
  }
  return check(0, tokens);
}

std::string EdgeText(const PlanRegister& r, const End& producer, const End& consumer) {
  return absl::StrCat("register '", r.name, "' from '", producer.name, "' to '", consumer.name,
                      "'");
}

// Checks token `token` of an iteration that is long under way; in such an iteration the initial
// tokens are the tokens of earlier iterations.
absl::Status Checker::CheckToken(const PlanRegister& r, const End& producer, const End& consumer,
                                 int64_t token) {
  // The initial tokens count as published in iterations before step 0, so all iterations are alike.
  const int64_t tokens = r.tokens_per_step * (plan_.rhythm.steps_per_iteration / r.every);
  const int64_t iterations = (r.initial_tokens + tokens - 1) / tokens;
  const int64_t taken = token + iterations * tokens;
  const int64_t needs = producer.LastAct(taken - r.initial_tokens), act = consumer.FirstAct(taken);
  const int64_t ready = producer.times.EndOf(needs) + r.latency_ns,
                start = consumer.times.StartOf(act);
  if (start >= ready) return absl::OkStatus();
  return TooEarly(EdgeText(r, producer, consumer), consumer.name, act, start, producer.name, needs,
                  ready, "ended and its token is there");
}

// Checks that `producer` does not take the slot of the token that `consumer` reads too early.
absl::Status Checker::CheckSlot(const PlanRegister& r, const End& producer, const End& consumer,
                                int64_t token) {
  const int64_t needs = consumer.LastAct(token),
                act = producer.FirstAct(token + r.slots - r.initial_tokens);
  const int64_t ready = consumer.times.EndOf(needs) + r.latency_ns,
                start = producer.times.StartOf(act);
  if (start >= ready) return absl::OkStatus();
  return TooEarly(
      EdgeText(r, producer, consumer), producer.name, act, start, consumer.name, needs, ready,
      absl::StrCat("given back one of the ", r.slots, r.slots == 1 ? " slot" : " slots"));
}

absl::Status Checker::CheckStream(const PlanStream& stream) {
  const PlanActor& any = plan_.actors[stream.entries[0].actor];
  const int64_t acts = any.acts_per_step,
                steps = any.ActsIn(plan_.rhythm.steps_per_iteration) / acts;
  int32_t lead = 0;
  for (const PlanStream::Entry& entry : stream.entries) lead = std::max(lead, entry.ahead);
  const PlanActor* before = nullptr;
  int64_t before_act = 0;
  // The loop runs one step too far, because the first step of the next iteration follows the last
  // of this.
  for (int64_t step = 0; step <= steps; ++step) {
    for (int64_t round = -lead; round < acts; ++round) {
      for (const PlanStream::Entry& entry : stream.entries) {
        const int64_t act = round + entry.ahead;
        if (act < 0 || act >= acts) continue;
        const PlanActor* after = &plan_.actors[entry.actor];
        const int64_t after_act = step * acts + act;
        const int64_t start = ActTimes(*after, after->timing, plan_.rhythm).StartOf(after_act);
        const int64_t ready =
            before == nullptr ? start
                              : ActTimes(*before, before->timing, plan_.rhythm).EndOf(before_act);
        if (start < ready) {
          return TooEarly(absl::StrCat("stream order '", stream.name, "'"), after->name, after_act,
                          start, before->name, before_act, ready,
                          "ended, which comes before it there");
        }
        before = after;
        before_act = after_act;
      }
    }
  }
  return absl::OkStatus();
}

void Mix(uint64_t value, uint64_t* key) { *key = MixKey(*key, value); }

// Names are for people and are not mixed in: two ranks may call an actor differently.
void MixEnd(const Rate& rate, const Span& span, const PlanTiming& timing, uint64_t* key) {
  for (int64_t value : {rate.acts_per_step, rate.chunks, rate.every, rate.every_phase, span.period,
                        span.tokens, span.phase, timing.start_ns, timing.micro_batch_stride_ns,
                        timing.chunk_stride_ns, timing.time_ns}) {
    Mix(static_cast<uint64_t>(value), key);
  }
  for (int64_t ns : timing.act_start_ns) Mix(static_cast<uint64_t>(ns), key);
}

}  // namespace

absl::Status CheckCertificate(const Plan& plan) { return Checker(plan).Check(); }

int64_t PlannedStartNs(const Plan& plan, const PlanActor& actor, int64_t act) {
  return ActTimes(actor, actor.timing, plan.rhythm).StartOf(act);
}

uint64_t EdgeStatement(const Plan& plan, const PlanRegister& r) {
  if (r.far.empty()) return 0;
  uint64_t key = static_cast<uint64_t>(r.latency_ns);
  for (int64_t ns :
       {plan.rhythm.iteration_ns, plan.rhythm.step_ns, int64_t{plan.rhythm.steps_per_iteration}}) {
    Mix(static_cast<uint64_t>(ns), &key);
  }
  if (r.producer.actor.has_value()) {
    const PlanActor& actor = plan.actors[r.producer.actor];
    MixEnd(actor, actor.outputs[r.producer.port], actor.timing, &key);
  } else {
    for (const PlanFarActor& far : r.far) MixEnd(far, far.port, far.timing, &key);
  }
  if (r.side == RegisterSide::kOutbound) {
    for (const PlanFarActor& far : r.far) MixEnd(far, far.port, far.timing, &key);
  } else {
    for (const PortRef& consumer : r.consumers) {
      const PlanActor& actor = plan.actors[consumer.actor];
      MixEnd(actor, actor.inputs[consumer.port], actor.timing, &key);
    }
  }
  return key;
}

}  // namespace weir::actors
