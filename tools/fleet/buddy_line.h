// A BuddyLine carries copies of states from this process to its buddy, and those of its charges to
// this process (buddy_choice.h), beside the steps. The bytes travel over a transport network of
// their own, straight from process to process. The network checks the epoch of every message.
//
//   Connect -> { Send -> (steps run) -> Look }* -> destruct
//
// A line has one edge for each pair of a charge and its buddy. A copy is a sequence of tokens with
// at most kTokenBytesMax each, whose header has the step of the copy.
// Thread rule: one thread; the line has a thread of its own, which alone uses the endpoint after
// Connect.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/clock.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "runtime/base/mutex.h"
#include "runtime/transport/transport.h"
#include "tools/fleet/guarded_states.h"

namespace weir::fleet {

// The role of the network of lines. Those of sessions are below (GroupRole, GenerationPlan).
inline constexpr uint16_t kBuddyRole = 16;

// One side of an edge of a line.
struct BuddyEdge {
  RankId peer;        // whose endpoint is the other side
  WorkerId charge;    // whose copies the edge carries
  int64_t bytes = 0;  // of a copy; above 0
};

struct BuddyLineOptions {
  uint32_t epoch = 1;
  RankId rank;                          // of this process, whose endpoint the line has
  std::optional<BuddyEdge> to_buddy;    // nullopt: this process has nothing to send
  std::vector<BuddyEdge> from_charges;  // each is expected by `guarded`
};

// The copies that were sent: the last one that has arrived.
struct SentCopy {
  int64_t step = -1;  // steps done; -1: none has arrived yet
  int64_t bytes = 0;
  int64_t took_ns = 0;  // from Send until the buddy had taken the last byte
};

class BuddyLine final : private transport::MessageReceiver {
 public:
  // Connects to the buddy and the charges, which connect at the same time. `guarded` takes the
  // copies of the charges, and must outlive the line. Errors are those of
  // TransportEndpoint::Connect.
  static absl::StatusOr<std::unique_ptr<BuddyLine>> Connect(
      const BuddyLineOptions& options, std::unique_ptr<transport::TransportNetwork> network,
      GuardedStates* guarded);
  // Leaves the network. What is under way is lost.
  ~BuddyLine();

  // Begins to send the copy of a step: `pieces` one after another, which must not change until the
  // copy has arrived or the line is gone. Precondition: the last copy has arrived.
  void Send(int64_t step, std::vector<absl::string_view> pieces) ABSL_LOCKS_EXCLUDED(mutex_);
  SentCopy Sent() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the error that has ended the line; OK while the line works. kUnavailable: the other
  // side is gone.
  absl::Status Fault() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  static constexpr int64_t kTokenBytesMax = 1 << 20;
  static constexpr int32_t kSlots = 4;

  struct Order {
    int64_t step = 0;
    std::vector<absl::string_view> pieces;
    int64_t begun_ns = 0;
  };
  struct Landing {
    BuddyEdge edge;
    const char* begin = nullptr;
    int64_t stride = 0;
  };

  BuddyLine(uint32_t epoch, std::unique_ptr<transport::TransportNetwork> network, RankId rank,
            GuardedStates* guarded);
  absl::Status AddEdges(const BuddyLineOptions& options);

  // The line's thread calls these.
  void Run();
  absl::StatusOr<int64_t> Work();
  void TakeOrder() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<int64_t> PutMore();
  void Rest() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status OnToken(EdgeHandle edge, const transport::MessageHeader& header) override;
  absl::Status OnCredit(EdgeHandle edge, int32_t slot) override;
  void NoteArrived() ABSL_LOCKS_EXCLUDED(mutex_);

  const uint32_t epoch_;
  const MonotonicClock clock_{};
  const std::unique_ptr<transport::TransportNetwork> network_;
  transport::TransportEndpoint* const endpoint_;
  GuardedStates* const guarded_;
  std::unique_ptr<char[]> own_landing_;  // null: the endpoint has the landing memory

  // Set by AddEdges; then the thread's.
  std::optional<BuddyEdge> to_buddy_;
  EdgeHandle out_;                          // the edge to the buddy
  IdVector<EdgeHandle, Landing> incoming_;  // by edge; without a landing for `out_`
  std::vector<int32_t> free_slots_;
  std::optional<Order> sending_;
  size_t piece_ = 0;        // of sending_->pieces: the first that is not sent whole
  int64_t in_piece_ = 0;    // bytes of it that are sent
  int64_t sequence_ = 0;    // of the next token
  int64_t sent_bytes_ = 0;  // of the copy under way

  mutable Mutex mutex_;
  CondVar news_;
  bool is_ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_woken_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Order> order_ ABSL_GUARDED_BY(mutex_);  // not yet begun
  SentCopy sent_ ABSL_GUARDED_BY(mutex_);
  absl::Status fault_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;
};

}  // namespace weir::fleet
