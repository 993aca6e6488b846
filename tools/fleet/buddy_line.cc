#include "tools/fleet/buddy_line.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace weir::fleet {
namespace {

constexpr int64_t kAlignment = 64;

int64_t Aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

absl::StatusOr<std::unique_ptr<BuddyLine>> BuddyLine::Connect(
    const BuddyLineOptions& options, std::unique_ptr<transport::TransportNetwork> network,
    GuardedStates* guarded) {
  std::unique_ptr<BuddyLine> line(
      new BuddyLine(options.epoch, std::move(network), options.rank, guarded));
  WEIR_RETURN_IF_ERROR(line->AddEdges(options));
  line->endpoint_->SetWakeHook([line = line.get()] {
    MutexLock lock(&line->mutex_);
    line->is_woken_ = true;
    line->news_.NotifyAll();
  });
  WEIR_RETURN_IF_ERROR(line->endpoint_->Connect());
  line->thread_ = std::thread([line = line.get()] { line->Run(); });
  return line;
}

BuddyLine::BuddyLine(uint32_t epoch, std::unique_ptr<transport::TransportNetwork> network,
                     RankId rank, GuardedStates* guarded)
    : epoch_(epoch),
      network_(std::move(network)),
      endpoint_(network_->endpoint(rank)),
      guarded_(guarded) {}

BuddyLine::~BuddyLine() {
  {
    MutexLock lock(&mutex_);
    is_ending_ = true;
  }
  news_.NotifyAll();
  if (thread_.joinable()) thread_.join();
  endpoint_->Close();
}

absl::Status BuddyLine::AddEdges(const BuddyLineOptions& options) {
  const auto token_bytes = [](const BuddyEdge& edge) {
    return std::min(kTokenBytesMax, Aligned(edge.bytes));
  };
  const auto edge_of = [&](const BuddyEdge& edge) {
    transport::TransportEdge added;
    // Edges have numbers from 1 on.
    added.edge = EdgeId(static_cast<uint64_t>(edge.charge.value()) + 1);
    added.peer = edge.peer;
    added.slots = kSlots;
    added.bytes = token_bytes(edge);
    return added;
  };
  int64_t bytes = 0;
  for (const BuddyEdge& edge : options.from_charges) bytes += kSlots * token_bytes(edge);
  WEIR_ASSIGN_OR_RETURN(char* landing, endpoint_->AllocateLanding(bytes));
  if (landing == nullptr && bytes > 0) {
    own_landing_ = std::make_unique<char[]>(static_cast<size_t>(bytes));
    landing = own_landing_.get();
  }
  to_buddy_ = options.to_buddy;
  if (to_buddy_.has_value()) {
    WEIR_ASSIGN_OR_RETURN(out_, endpoint_->AddEdge(edge_of(*to_buddy_)));
    incoming_.emplace_back();
    for (int32_t slot = kSlots; slot > 0; --slot) free_slots_.push_back(slot - 1);
  }
  for (const BuddyEdge& edge : options.from_charges) {
    transport::TransportEdge added = edge_of(edge);
    added.direction = transport::TransportEdge::Direction::kIncoming;
    added.landing = landing;
    added.stride = added.bytes;
    WEIR_RETURN_IF_ERROR(endpoint_->AddEdge(added).status());
    incoming_.push_back({edge, landing, added.stride});
    landing += kSlots * added.stride;
  }
  return absl::OkStatus();
}

void BuddyLine::Send(int64_t step, std::vector<absl::string_view> pieces) {
  MutexLock lock(&mutex_);
  order_ = Order{step, std::move(pieces), clock_.NowNs()};
  news_.NotifyAll();
}

SentCopy BuddyLine::Sent() const {
  MutexLock lock(&mutex_);
  return sent_;
}

absl::Status BuddyLine::Fault() const {
  MutexLock lock(&mutex_);
  return fault_;
}

void BuddyLine::Run() {
  while (true) {
    const absl::StatusOr<int64_t> done = Work();
    {
      MutexLock lock(&mutex_);
      if (!done.ok()) fault_ = done.status();
      if (is_ending_ || !done.ok()) return;
    }
    if (*done == 0) Rest();
  }
}

// Returns the number of messages that came or went.
absl::StatusOr<int64_t> BuddyLine::Work() {
  TakeOrder();
  WEIR_ASSIGN_OR_RETURN(const int64_t came, endpoint_->Poll(this));
  WEIR_ASSIGN_OR_RETURN(const int64_t went, PutMore());
  return came + went;
}

void BuddyLine::TakeOrder() {
  if (sending_.has_value()) return;
  MutexLock lock(&mutex_);
  sending_.swap(order_);
  piece_ = 0;
  in_piece_ = sent_bytes_ = 0;
}

absl::StatusOr<int64_t> BuddyLine::PutMore() {
  int64_t num_put = 0;
  while (sending_.has_value() && piece_ < sending_->pieces.size() && !free_slots_.empty()) {
    const absl::string_view rest = sending_->pieces[piece_].substr(static_cast<size_t>(in_piece_));
    if (rest.empty()) {
      ++piece_;
      in_piece_ = 0;
      continue;
    }
    const int32_t slot = free_slots_.back();
    const absl::string_view part =
        rest.substr(0, static_cast<size_t>(std::min(kTokenBytesMax, Aligned(to_buddy_->bytes))));
    transport::MessageHeader header;
    header.epoch = epoch_;
    header.role = kBuddyRole;
    header.edge = EdgeId(static_cast<uint64_t>(to_buddy_->charge.value()) + 1);
    header.slot = slot;
    header.sequence = sequence_;
    header.step = header.version = sending_->step;
    header.payload_bytes = static_cast<int64_t>(part.size());
    const void* bytes = part.data();
    if (void* const mapped = endpoint_->TryMap(out_, slot); mapped != nullptr) {
      std::memcpy(mapped, part.data(), part.size());
      bytes = mapped;
    }
    WEIR_RETURN_IF_ERROR(endpoint_->Put(out_, header, bytes));
    free_slots_.pop_back();
    ++sequence_;
    ++num_put;
    in_piece_ += header.payload_bytes;
    sent_bytes_ += header.payload_bytes;
  }
  return num_put;
}

absl::Status BuddyLine::OnToken(EdgeHandle edge, const transport::MessageHeader& header) {
  const Landing& landing = incoming_[edge];
  WEIR_RETURN_IF_ERROR(guarded_->Add(landing.edge.charge, header.step,
                                     absl::string_view(landing.begin + header.slot * landing.stride,
                                                       static_cast<size_t>(header.payload_bytes))));
  return endpoint_->ReturnCredit(edge, header.slot);
}

absl::Status BuddyLine::OnCredit(EdgeHandle /*edge*/, int32_t slot) {
  free_slots_.push_back(slot);
  const bool all_put = sending_.has_value() && sent_bytes_ == to_buddy_->bytes;
  if (all_put && free_slots_.size() == static_cast<size_t>(kSlots)) NoteArrived();
  return absl::OkStatus();
}

void BuddyLine::NoteArrived() {
  MutexLock lock(&mutex_);
  sent_ = {sending_->step, sent_bytes_, clock_.NowNs() - sending_->begun_ns};
  sending_.reset();
}

// Sleeps until there is news: a message, an order, or the end.
void BuddyLine::Rest() {
  if (endpoint_->Park() == transport::TransportEndpoint::ParkResult::kParked) {
    MutexLock lock(&mutex_);
    news_.Wait(&mutex_, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return is_woken_ || is_ending_ || (order_.has_value() && !sending_.has_value());
    });
    is_woken_ = false;
  }
  endpoint_->Unpark();
}

}  // namespace weir::fleet
