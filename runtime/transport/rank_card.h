// A RankCard is the message of a rank to the other ranks before tensors move: how to reach the
// rank, and its side of each edge. A card travels in an envelope through the Exchange. The address
// and the key of the landing memory are bytes for the transport underneath, and mean nothing here.
// Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/ids.h"
#include "runtime/transport/transport.h"

namespace weir::transport {

struct CardEdge {
  EdgeId edge;
  TransportEdge::Direction direction = TransportEdge::Direction::kOutgoing;
  RankId peer{0};
  int32_t slots = 0;
  int32_t initial_tokens = 0;
  int64_t bytes = 0;
  uint64_t statement = 0;  // as TransportEdge
  EdgeHandle handle;       // at the rank of the card
  // The start of slot 0 in the landing memory that others can reach; -1: the landing is elsewhere,
  // and peers send.
  int64_t landing_offset = -1;
  int64_t stride = 0;
  // False for a side that computes nothing, to which no payload is sent.
  bool has_landing = false;
};

struct RankCard {
  RankId rank{0};
  int32_t num_ranks = 0;
  uint8_t lanes = 0;  // options that both sides must share
  uint8_t checksum = 0;
  std::string host;  // equal for ranks that can share memory
  std::string address;
  std::string public_key;        // of the rank (pair_key.h)
  std::string landing_key;       // empty: no landing memory that others can reach
  uint64_t landing_address = 0;  // at the rank of the card; a peer's library translates it
  int64_t landing_bytes = 0;
  // The block of message rings (message_ring.h), with a ring for each rank that `edges` name as a
  // peer, in the order of the ranks. The fields are as those of the landing memory.
  std::string rings_key;
  uint64_t rings_address = 0;
  int64_t rings_bytes = 0;
  std::vector<CardEdge> edges;
};

// Returns the ranks that `edges` name as peers, ascending.
std::vector<RankId> PeersOf(const std::vector<CardEdge>& edges);

// Returns the name under which the card of a rank travels, for the session of a role in an epoch of
// the plan.
std::string CardSubject(uint32_t epoch, uint16_t role, RankId rank);
// Returns the rank of the card with this name; RankId() if CardSubject makes no such name.
RankId RankOfCardSubject(const std::string& subject);

std::string EncodeRankCard(const RankCard& card);
// kDataLoss unless the bytes are exactly a card whose numbers make sense by themselves.
absl::StatusOr<RankCard> DecodeRankCard(const std::string& bytes);

// Finds the other side of each edge of `mine` with `theirs.rank`. Returns the position of their
// edge by the position of my edge, -1 for edges with other ranks. kInvalidArgument naming the edge
// if the sides disagree.
absl::StatusOr<std::vector<int>> PairEdges(const RankCard& mine, const RankCard& theirs);

}  // namespace weir::transport
