// An ActorMachine is the actor protocol of one actor, and nothing else: facts in, effects out.
//
// An act may start when every input port that begins a span with it has its tokens, every output
// port that begins a span with it has its free slots, no act is running and the limit is not
// reached. A port of period n takes its tokens (or slots) before act 0 of a span and gives them up
// after act n-1.
//
//            token/credit: nothing missing      Start
//   waiting ------------------------------> ready ----> running
//   (input, credit)  ^                        ^            | OnActDone
//                    +------------------------+------------+----> done (limit)
//
// Tokens of a register come in order and its slots go round, so a machine needs only counts: the
// slot of a token follows from the token's number. Every effect still names its slot, and the
// engine checks the slots of incoming messages against the machine's.
//
// Not here: clocks, blocking, randomness, memory of slots, the identity of neighbours. Steady state
// allocates nothing. Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "runtime/base/ids.h"

namespace weir::actors {

// An ActorState is the activity of an actor; an actor always has exactly one.
enum class ActorState : uint8_t {
  kRunning,
  kWaitsForInput,   // a token of register()
  kWaitsForCredit,  // a free slot of register()
  kWaitsForStream,  // ready; the device has not taken it yet
  kDone,            // all acts it may do are done
};
const char* Name(ActorState state);

// An Effect is an order of the machine to its engine.
struct Effect {
  enum class Kind : uint8_t {
    kPublishToken,  // token `number` of the register lies in `slot`
    kReturnCredit,  // this port no longer reads `slot`, which held token `number`
  };
  Kind kind = Kind::kPublishToken;
  int32_t port = -1;
  RegisterId register_id;
  int32_t slot = -1;
  int64_t number = 0;
};

// Effects holds the effects of one act, in order. The room is allocated once, for the largest
// actor: an act has at most one effect per token of each port.
class Effects {
 public:
  explicit Effects(size_t capacity) : list_(capacity) {}
  void clear() { size_ = 0; }
  void Add(const Effect& effect) { list_[size_++] = effect; }
  const Effect* begin() const { return list_.data(); }
  const Effect* end() const { return list_.data() + size_; }
  size_t size() const { return size_; }
  const Effect& operator[](size_t i) const { return list_[i]; }

 private:
  std::vector<Effect> list_;
  size_t size_ = 0;
};

// A PortSpec is a port with its position when its machine is made. Tokens are numbered from 0,
// initial tokens included; token k lies in slot k % slots.
struct PortSpec {
  RegisterId register_id;
  int32_t period = 1;
  int32_t slots = 1;
  int32_t tokens = 1;     // of a span; at most `slots`
  int32_t available = 0;  // input: tokens not yet taken; output: free slots not yet taken
  int32_t position = 0;   // the next act's place in its span
  enum class Span : uint8_t {
    kNotBegun,
    kBegun
  } span = Span::kNotBegun;  // kBegun: its tokens are taken
  // The number of the first token that the next span to begin will take.
  int64_t next_token = 0;
};

// A WaitCause is the last thing that an act waited for.
struct WaitCause {
  enum class Kind : uint8_t { kNone, kInput, kCredit, kGroup };
  Kind kind = Kind::kNone;
  RegisterId register_id;
};

class ActorMachine {
 public:
  struct Port {
    RegisterId register_id;
    int32_t period = 1;
    int32_t slots = 1;
    int32_t tokens = 1;
    int32_t position = 0;    // acts of the current span that are done
    int32_t available = 0;   // input: tokens not yet taken; output: free slots not yet taken
    int32_t held_slot = -1;  // the first slot of the current span; -1 between spans
    int32_t next_slot = 0;
    bool wanted = false;     // the next act begins a span and too little is available
    int64_t next_token = 0;  // number of the first token of the next span to begin

    // Returns the slot of token `k` of the span. Precondition: a span is under way.
    int32_t slot(int32_t k) const {
      return held_slot + k < slots ? held_slot + k : held_slot + k - slots;
    }
    bool Holds(int32_t s) const {
      return held_slot >= 0 && (s >= held_slot ? s : s + slots) < held_slot + tokens;
    }
  };

  // The machine does not count acts that ports did before its construction.
  ActorMachine(ActorId id, absl::Span<const PortSpec> inputs, absl::Span<const PortSpec> outputs);

  // Each of these functions returns true when the actor has just become ready.
  bool RaiseLimit(int64_t acts);
  bool OnToken(int input) { return OnArrival(ports_[input], WaitCause::Kind::kInput); }
  bool OnCredit(int output) {
    return OnArrival(ports_[num_inputs_ + output], WaitCause::Kind::kCredit);
  }

  // Starts the act: takes the tokens and slots of the spans that begin with it. Precondition:
  // ready().
  void Start();
  // Ends the running act. Emits tokens and credits of the spans that end with the act; returns
  // whether the next act is ready at once.
  bool OnActDone(Effects* effects);

  bool ready() const { return missing_ == 0 && !running_ && acts_done_ < limit_; }
  bool running() const { return running_; }
  bool done() const { return !running_ && acts_done_ == limit_; }
  int64_t acts_done() const { return acts_done_; }
  int64_t limit() const { return limit_; }
  ActorId id() const { return id_; }

  ActorState state() const;
  // Returns the register of kWaitsForInput or kWaitsForCredit (the first of several), if any.
  RegisterId waits_for() const;
  // Returns the last thing that the ready or running act waited for.
  WaitCause last_cause() const { return cause_; }

  int num_inputs() const { return num_inputs_; }
  int num_outputs() const { return static_cast<int>(ports_.size()) - num_inputs_; }
  const Port& input(int i) const { return ports_[i]; }
  const Port& output(int i) const { return ports_[num_inputs_ + i]; }

 private:
  void AddPort(const PortSpec& spec);
  bool OnArrival(Port& port, WaitCause::Kind kind) {
    ++port.available;
    if (!port.wanted || port.available < port.tokens) return false;
    port.wanted = false;
    cause_ = {kind, port.register_id};
    return --missing_ == 0 && !running_ && acts_done_ < limit_;
  }

  // Gives up the tokens or slots of a span that ends with the act.
  void EndActOfPort(Port& port, Effect::Kind kind, int32_t index, Effects* effects) {
    if (++port.position < port.period) return;
    port.position = 0;
    if (port.tokens == 1) {  // nearly always, and faster without a loop
      effects->Add({kind, index, port.register_id, port.held_slot, port.next_token - 1});
    } else {
      for (int32_t k = 0; k < port.tokens; ++k) {
        effects->Add(
            {kind, index, port.register_id, port.slot(k), port.next_token - port.tokens + k});
      }
    }
    port.held_slot = -1;
    if (port.available < port.tokens) {
      port.wanted = true;
      ++missing_;
    }
  }

  ActorId id_;
  int32_t num_inputs_ = 0;
  int32_t missing_ = 0;  // ports that are `wanted`
  bool running_ = false;
  WaitCause cause_;
  int64_t acts_done_ = 0;
  int64_t limit_ = 0;
  std::vector<Port> ports_;  // inputs, then outputs
};

inline void ActorMachine::Start() {
  for (Port& port : ports_) {
    if (port.held_slot >= 0) continue;
    port.available -= port.tokens;
    port.next_token += port.tokens;
    port.held_slot = port.next_slot;
    port.next_slot +=
        port.next_slot + port.tokens < port.slots ? port.tokens : port.tokens - port.slots;
  }
  running_ = true;
}

inline bool ActorMachine::OnActDone(Effects* effects) {
  running_ = false;
  ++acts_done_;
  cause_ = {};
  // Outputs come first: tokens that others wait for leave before slots that others may reuse.
  const int32_t num_ports = static_cast<int32_t>(ports_.size());
  for (int32_t i = num_ports - 1; i >= num_inputs_; --i)
    EndActOfPort(ports_[i], Effect::Kind::kPublishToken, i - num_inputs_, effects);
  for (int32_t i = num_inputs_ - 1; i >= 0; --i)
    EndActOfPort(ports_[i], Effect::Kind::kReturnCredit, i, effects);
  return ready();
}

}  // namespace weir::actors
