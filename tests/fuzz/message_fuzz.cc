// Reads any bytes as messages from another process, as a rank's card and as an envelope. They are
// refused, or entered in a way that keeps the promises of the ledger. An input is a list of
// commands, so that messages meet every state that sending, receiving and passing on can cause.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/transport/envelope.h"
#include "runtime/transport/message_ledger.h"
#include "runtime/transport/rank_card.h"

namespace {

using weir::EdgeHandle;
using weir::transport::MessageLedger;
using weir::transport::TransportEdge;
using weir::transport::WireMessage;

void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

// The bytes of an input, with zeros after its end.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : next_(data), end_(data + size) {}
  bool empty() const { return next_ == end_; }
  uint8_t Byte() { return empty() ? 0 : *next_++; }
  std::string Bytes(size_t size) {
    std::string bytes;
    while (bytes.size() < size) bytes += static_cast<char>(Byte());
    return bytes;
  }
  std::string Rest() { return std::string(reinterpret_cast<const char*>(next_), end_ - next_); }

 private:
  const uint8_t* next_;
  const uint8_t* end_;
};

constexpr int kEdges = 4;
constexpr int32_t kRanks = 3;
constexpr int64_t kBytes = 40;
const std::string kKey(32, 'k');
constexpr uint64_t kPairTag = 77;  // of messages from rank 0; rank 2 has the next

// Rank 1, with edges of 1 to 4 slots to ranks 0 and 2 in both directions, and its own memory beside
// the ledger.
class LedgerRun {
 public:
  LedgerRun()
      : landing_(kEdges),
        ledger_({kKey, 7, 1, weir::RankId(1), kRanks}, Edges()),
        under_way_(kEdges),
        next_(kEdges) {
    ledger_.ExpectTag(weir::RankId(0), kPairTag);
    ledger_.ExpectTag(weir::RankId(2), kPairTag + 1);
  }

  void Do(Input& input) {
    switch (input.Byte() % 7) {
      case 0:
        return Enter(input.Bytes(weir::transport::kWireMessageBytes - input.Byte() % 2),
                     input.Byte());
      case 1: return EnterOfThisJob(input.Bytes(weir::transport::kWireMessageBytes), input.Byte());
      case 2: return EnterPlausible(input);
      case 3: return Send(EdgeHandle(input.Byte() % kEdges), input.Byte() % 5);
      case 4: return Leave(EdgeHandle(input.Byte() % kEdges), input.Byte() % 4);
      case 5: return Receive(EdgeHandle(input.Byte() % kEdges), input.Byte() % 4);
      default: return Take(EdgeHandle(input.Byte() % kEdges));
    }
  }

 private:
  weir::IdVector<EdgeHandle, weir::transport::LedgerEdge> Edges() {
    weir::IdVector<EdgeHandle, weir::transport::LedgerEdge> edges(kEdges);
    for (const EdgeHandle handle : edges.ids()) {
      const int i = handle.value();
      weir::transport::TransportEdge& spec = edges[handle].spec;
      spec.direction = i % 2 == 0 ? weir::transport::TransportEdge::Direction::kIncoming
                                  : weir::transport::TransportEdge::Direction::kOutgoing;
      spec.edge = weir::EdgeId(100 + i);
      spec.peer = weir::RankId(i < 2 ? 0 : 2);
      spec.slots = i + 1;
      spec.initial_tokens = i / 2;
      spec.bytes = kBytes;
      spec.stride = kBytes;
      landing_[i].resize(spec.slots * kBytes);
      spec.landing = i % 2 == 0 ? landing_[i].data() : nullptr;
      edges[handle].landing = i == 2 ? weir::transport::LedgerEdge::Landing::kReachable
                                     : weir::transport::LedgerEdge::Landing::kPrivate;
      leaving_.emplace_back(spec.slots, false);
      receiving_.emplace_back(spec.slots, false);
    }
    return edges;
  }
  void EnterOfThisJob(std::string bytes, uint64_t behind) {
    const uint64_t tag = ledger_.job_tag();
    const uint64_t pair_tag = kPairTag + (bytes[8] & 1);
    const uint32_t epoch = 7;
    const uint16_t role = 1;
    std::memcpy(bytes.data(), &tag, sizeof(tag));
    std::memcpy(bytes.data() + 8, &pair_tag, sizeof(pair_tag));
    std::memcpy(bytes.data() + 16, &epoch, sizeof(epoch));
    std::memcpy(bytes.data() + 20, &role, sizeof(role));
    Enter(bytes, behind);
  }
  void EnterPlausible(Input& input) {
    weir::transport::WireMessage message;
    message.job_tag = ledger_.job_tag();
    message.epoch = 7;
    message.role = 1;
    message.receiver_edge = EdgeHandle(input.Byte() % kEdges);
    message.sender = weir::RankId(message.receiver_edge.value() < 2 ? 0 : 2);
    message.pair_tag = kPairTag + (message.sender == weir::RankId(2) ? 1 : 0);
    message.kind = static_cast<weir::transport::WireMessage::Kind>(1 + input.Byte() % 5);
    message.payload = static_cast<weir::transport::WireMessage::Payload>(input.Byte() % 3);
    message.number = next_[message.receiver_edge] + input.Byte() % 4;
    message.header.edge = weir::EdgeId(100 + message.receiver_edge.value());
    message.header.slot = input.Byte() % 4;
    message.header.payload_bytes = input.Byte() % (kBytes + 2);
    std::string bytes(weir::transport::kWireMessageBytes, '\0');
    weir::transport::EncodeWireMessage(message, bytes.data());
    Enter(bytes, message.payload == weir::transport::WireMessage::Payload::kSent
                     ? message.header.payload_bytes
                     : 0);
  }
  void Enter(const std::string& bytes, uint64_t behind) {
    weir::transport::WireMessage message;
    absl::StatusOr<weir::transport::MessageLedger::Verdict> verdict =
        ledger_.Enter(bytes.data(), bytes.size(), behind, &message);
    Require(verdict.ok() || verdict.status().code() == absl::StatusCode::kDataLoss,
            "refused as damage");
    if (!verdict.ok() || *verdict != weir::transport::MessageLedger::Verdict::kAccepted) return;
    Require(message.sender == weir::RankId(0) || message.sender == weir::RankId(2), "a peer");
    if (message.kind != weir::transport::WireMessage::Kind::kToken &&
        message.kind != weir::transport::WireMessage::Kind::kCredit)
      return;
    Require(under_way_.Has(message.receiver_edge), "an edge");
    const weir::transport::TransportEdge& spec = ledger_.spec(message.receiver_edge);
    Require(message.header.slot >= 0 && message.header.slot < spec.slots, "a slot");
    Require(++under_way_[message.receiver_edge] <= spec.slots, "no more under way than slots");
    if (behind == 0) return;
    Require(spec.landing != nullptr && behind <= static_cast<uint64_t>(spec.bytes),
            "a payload that fits");
    std::memset(spec.landing + message.header.slot * spec.stride, 1, behind);
    receiving_[message.receiver_edge][message.header.slot] = true;
  }
  void Send(EdgeHandle edge, int32_t slot) {
    if (!ledger_.CheckSend(edge, ledger_.spec(edge).direction, slot).ok()) return;
    Require(!leaving_[edge][slot], "one message per slot leaves at a time");
    ledger_.BeginSend(edge, slot);
    leaving_[edge][slot] = true;
  }
  void Leave(EdgeHandle edge, int32_t slot) {
    if (slot >= ledger_.spec(edge).slots || !leaving_[edge][slot]) return;
    ledger_.EndSend(edge, slot);
    leaving_[edge][slot] = false;
  }
  void Receive(EdgeHandle edge, int32_t slot) {
    if (slot >= ledger_.spec(edge).slots || !receiving_[edge][slot]) return;
    ledger_.Complete(edge, slot);
    receiving_[edge][slot] = false;
  }
  void Take(EdgeHandle edge) {
    const weir::transport::MessageLedger::Arrival* arrival = ledger_.Front(edge);
    if (arrival == nullptr) return;
    const int32_t slot = arrival->message.header.slot;
    Require(arrival->message.number == next_[edge]++, "in order");
    Require(!leaving_[edge][slot] && !receiving_[edge][slot], "at rest");
    Require(--under_way_[edge] >= 0, "only what came");
    ledger_.Pop(edge);
  }

  std::vector<std::vector<char>> landing_;
  weir::IdVector<EdgeHandle, std::vector<bool>> leaving_;
  weir::IdVector<EdgeHandle, std::vector<bool>> receiving_;
  weir::transport::MessageLedger ledger_;
  weir::IdVector<EdgeHandle, int> under_way_;
  weir::IdVector<EdgeHandle, uint32_t> next_;
};

void ReadCard(const std::string& bytes) {
  absl::StatusOr<weir::transport::RankCard> card = weir::transport::DecodeRankCard(bytes);
  if (!card.ok()) {
    Require(card.status().code() == absl::StatusCode::kDataLoss, "refused as damage");
    return;
  }
  Require(weir::transport::EncodeRankCard(*card) == bytes, "a card has one form");
  weir::transport::RankCard mine;
  mine.rank = weir::RankId(card->rank == weir::RankId(0) ? 1 : 0);
  mine.num_ranks = card->num_ranks;
  (void)weir::transport::PairEdges(mine, *card);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  switch (input.Byte() % 4) {
    case 0: ReadCard(input.Rest()); break;
    case 1:
      Require(!weir::transport::OpenEnvelope(kKey, "fuzz", input.Rest()).ok(),
              "nobody can seal without the key");
      break;
    default: {
      LedgerRun run;
      while (!input.empty()) run.Do(input);
    }
  }
  return 0;
}
