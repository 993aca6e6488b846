#include "compiler/rates/waits.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace weir::compiler {
namespace {

absl::Status Bad(const std::string& what) {
  return absl::InternalError(absl::StrCat("timed graph: ", what));
}

bool InRange(int64_t value, int64_t least) { return value >= least && value < kCountMax; }

absl::Status CheckPort(const TimedGraph& graph, const TimedGraph::Register& reg,
                       const TimedGraph::Port& port) {
  if (!graph.actors.Has(port.actor)) return Bad(absl::StrCat(reg.name, ": no actor ", port.actor));
  const TimedGraph::Actor& actor = graph.actors[port.actor];
  if (!InRange(port.period, 1) || !InRange(port.tokens, 1) || actor.acts % port.period != 0) {
    return Bad(absl::StrCat(reg.name, " at ", actor.name, ": ", port.tokens, " tokens in ",
                            port.period, " of ", actor.acts, " acts"));
  }
  return absl::OkStatus();
}

// Both factors are below kCountMax by CheckPort, so the product fits.
int64_t TokensOfIteration(const TimedGraph& graph, const TimedGraph::Port& port) {
  return graph.actors[port.actor].acts / port.period * port.tokens;
}

absl::Status CheckRegister(const TimedGraph& graph, const TimedGraph::Register& reg) {
  if (absl::Status status = CheckPort(graph, reg, reg.producer); !status.ok()) return status;
  const int64_t tokens = TokensOfIteration(graph, reg.producer);
  for (const TimedGraph::Port& port : reg.consumers) {
    if (absl::Status status = CheckPort(graph, reg, port); !status.ok()) return status;
    if (TokensOfIteration(graph, port) != tokens) {
      return Bad(absl::StrCat(reg.name, ": ", tokens, " tokens an iteration from ",
                              graph.actors[reg.producer.actor].name, ", ",
                              TokensOfIteration(graph, port), " for ",
                              graph.actors[port.actor].name));
    }
  }
  if (!InRange(tokens, 1) || !InRange(reg.initial_tokens, 0) || !InRange(reg.slots, 0) ||
      !InRange(reg.slots_max, 0) || reg.bytes < 0 || reg.bytes > int64_t{1} << 50 ||
      reg.latency_ns < 0 || reg.latency_ns > kActNsMax) {
    return Bad(absl::StrCat(reg.name, ": ", tokens, " tokens, ", reg.initial_tokens, " initial, ",
                            reg.slots, " slots of at most ", reg.slots_max, ", ", reg.bytes,
                            " bytes, ", reg.latency_ns, " ns"));
  }
  for (const int64_t slots : {reg.slots, reg.slots_max}) {
    if (slots > 0 && slots < reg.initial_tokens) {
      return Bad(absl::StrCat(reg.name, ": ", slots, " slots cannot hold ", reg.initial_tokens,
                              " initial tokens"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

Wait TokenWait(const TimedGraph& graph, RegisterId reg, int consumer) {
  const TimedGraph::Register& r = graph.registers[reg];
  const TimedGraph::Port& port = r.consumers[consumer];
  return {Wait::Kind::kToken, reg,  -1,         consumer,         port.actor,
          r.producer.actor,   port, r.producer, r.initial_tokens, r.latency_ns};
}

Wait SlotWait(const TimedGraph& graph, RegisterId reg, int consumer, int64_t slots) {
  const TimedGraph::Register& r = graph.registers[reg];
  const TimedGraph::Port& port = r.consumers[consumer];
  return {Wait::Kind::kSlot,        reg,         -1,         consumer,
          r.producer.actor,         port.actor,  r.producer, port,
          slots - r.initial_tokens, r.latency_ns};
}

Wait OrderWait(const TimedGraph& graph, int order) {
  const TimedGraph::Order& o = graph.orders[order];
  const Wait::Kind kind =
      o.kind == TimedGraph::Order::Kind::kJoint ? Wait::Kind::kJoint : Wait::Kind::kOrder;
  return {
      kind, RegisterId(), order, -1, o.after, o.before, {o.after, 1, 1}, {o.before, 1, 1}, o.delay,
      0};
}

std::vector<Wait> AllWaits(const TimedGraph& graph) {
  std::vector<Wait> waits;
  waits.reserve(3 * graph.registers.size() + graph.orders.size());
  for (RegisterId r : graph.registers.ids()) {
    for (size_t c = 0; c < graph.registers[r].consumers.size(); ++c) {
      waits.push_back(TokenWait(graph, r, static_cast<int>(c)));
      if (graph.registers[r].slots > 0)
        waits.push_back(SlotWait(graph, r, static_cast<int>(c), graph.registers[r].slots));
    }
  }
  for (size_t o = 0; o < graph.orders.size(); ++o) {
    waits.push_back(OrderWait(graph, static_cast<int>(o)));
    if (graph.orders[o].kind != TimedGraph::Order::Kind::kJoint) continue;
    Wait back = waits.back();
    std::swap(back.waiter, back.other);
    std::swap(back.waiter_port, back.other_port);
    waits.push_back(back);
  }
  return waits;
}

std::string Describe(const TimedGraph& graph, const Wait& wait, const Need& need) {
  std::string when;
  if (need.iterations == -1) when = " of the iteration before";
  if (need.iterations == 1) when = " of the next iteration";
  if (need.iterations < -1) when = absl::StrCat(" of ", -need.iterations, " iterations before");
  if (need.iterations > 1) when = absl::StrCat(" of ", need.iterations, " iterations later");
  const std::string act =
      absl::StrCat("act ", need.act, " of `", graph.actors[wait.waiter].name, "` ");
  const std::string other =
      absl::StrCat("act ", need.other_act, when, " of `", graph.actors[wait.other].name, "`");
  switch (wait.kind) {
    case Wait::Kind::kToken:
      return absl::StrCat(act, "takes a token of `", graph.registers[wait.reg].name, "` that ",
                          other, " publishes");
    case Wait::Kind::kSlot:
      return absl::StrCat(act, "takes a slot of `", graph.registers[wait.reg].name, "` that ",
                          other, " releases");
    case Wait::Kind::kOrder:
      return absl::StrCat(act, "comes after ", other, " (", graph.orders[wait.order].why, ")");
    case Wait::Kind::kJoint:
      return absl::StrCat(act, "starts together with ", other, " (", graph.orders[wait.order].why,
                          ")");
  }
  return act;
}

absl::Status CheckGraph(const TimedGraph& graph) {
  for (const TimedGraph::Actor& actor : graph.actors) {
    if (!InRange(actor.acts, 1) || !InRange(actor.chunks, 1) || actor.acts % actor.chunks != 0 ||
        actor.time_ns < 1 || actor.time_ns > kActNsMax) {
      return Bad(absl::StrCat(actor.name, ": ", actor.acts, " acts in chunks of ", actor.chunks,
                              ", ", actor.time_ns, " ns each"));
    }
  }
  for (const TimedGraph::Register& reg : graph.registers) {
    if (absl::Status status = CheckRegister(graph, reg); !status.ok()) return status;
  }
  for (const TimedGraph::Order& order : graph.orders) {
    if (!graph.actors.Has(order.before) || !graph.actors.Has(order.after)) {
      return Bad(
          absl::StrCat("order ", order.why, ": no actor ", order.before, " or ", order.after));
    }
    const TimedGraph::Actor& before = graph.actors[order.before];
    const TimedGraph::Actor& after = graph.actors[order.after];
    if (before.acts != after.acts || order.delay <= -kCountMax || order.delay >= kCountMax ||
        (order.kind == TimedGraph::Order::Kind::kJoint && order.delay != 0)) {
      return Bad(absl::StrCat("order ", order.why, ": ", before.name, " acts ", before.acts,
                              " times, ", after.name, " ", after.acts, " times, delay ",
                              order.delay));
    }
  }
  return absl::OkStatus();
}

}  // namespace weir::compiler
