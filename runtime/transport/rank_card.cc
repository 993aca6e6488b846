#include "runtime/transport/rank_card.h"

#include <cstring>
#include <map>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"

namespace weir::transport {
namespace {

constexpr uint32_t kVersion = 4;
constexpr char kCardPrefix[] = "transport";
constexpr uint64_t kStringBytesMax = 1 << 16;
constexpr uint64_t kEdgesMax = 1 << 20;
constexpr size_t kEdgeBytes = 8 + 1 + 4 + 4 + 4 + 8 + 8 + 4 + 8 + 8 + 1;

class CardWriter {
 public:
  template <typename T>
  void operator()(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void operator()(const std::string& text) {
    (*this)(static_cast<uint64_t>(text.size()));
    bytes_ += text;
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class CardReader {
 public:
  explicit CardReader(const std::string& bytes) : bytes_(bytes) {}
  template <typename T>
  void operator()(T& value) {
    if (!Has(sizeof(value))) return;
    std::memcpy(&value, bytes_.data() + next_, sizeof(value));
    next_ += sizeof(value);
  }
  void operator()(bool& value) {
    uint8_t byte = 0;
    (*this)(byte);
    ok_ = ok_ && byte <= 1;
    value = byte == 1;
  }
  void operator()(std::string& text) {
    uint64_t size = 0;
    (*this)(size);
    if (size > kStringBytesMax || !Has(size)) {
      ok_ = false;
      return;
    }
    text = bytes_.substr(next_, size);
    next_ += size;
  }
  bool Has(uint64_t size) {
    ok_ = ok_ && size <= bytes_.size() - next_;
    return ok_;
  }
  bool ok() const { return ok_; }
  bool at_end() const { return next_ == bytes_.size(); }

 private:
  const std::string& bytes_;
  size_t next_ = 0;
  bool ok_ = true;
};

template <typename Card, typename Field>
void ForEachField(Card& card, Field& field) {
  field(card.rank);
  field(card.num_ranks);
  field(card.lanes);
  field(card.checksum);
  field(card.host);
  field(card.address);
  field(card.public_key);
  field(card.landing_key);
  field(card.landing_address);
  field(card.landing_bytes);
  field(card.rings_key);
  field(card.rings_address);
  field(card.rings_bytes);
}

template <typename Edge, typename Field>
void ForEachEdgeField(Edge& edge, Field& field) {
  field(edge.edge);
  field(edge.direction);
  field(edge.peer);
  field(edge.slots);
  field(edge.initial_tokens);
  field(edge.bytes);
  field(edge.statement);
  field(edge.handle);
  field(edge.landing_offset);
  field(edge.stride);
  field(edge.has_landing);
}

absl::Status BadCard(const std::string& found) {
  return Damaged({"W0523", "a rank's card", "a card of this version", found,
                  "run the same build on all ranks"});
}

// Returns whether the slots of a reachable landing lie within the landing memory.
bool FitsLanding(const CardEdge& edge, int64_t landing_bytes) {
  if (edge.landing_offset < 0) return edge.landing_offset == -1;
  int64_t span = 0;
  int64_t end = 0;
  return edge.stride >= edge.bytes &&
         !__builtin_mul_overflow(edge.stride, int64_t{edge.slots} - 1, &span) &&
         !__builtin_add_overflow(span, edge.bytes, &span) &&
         !__builtin_add_overflow(span, edge.landing_offset, &end) && end <= landing_bytes;
}

bool IsSound(const RankCard& card, size_t position) {
  const CardEdge& edge = card.edges[position];
  return edge.direction <= TransportEdge::Direction::kIncoming && edge.peer.value() >= 0 &&
         edge.peer.value() < card.num_ranks && edge.peer != card.rank && edge.slots >= 1 &&
         edge.bytes >= 0 && edge.initial_tokens >= 0 && edge.initial_tokens <= edge.slots &&
         edge.handle.value() >= 0 && FitsLanding(edge, card.landing_bytes) &&
         (edge.landing_offset < 0 || edge.has_landing);
}

absl::Status Disagreement(EdgeId edge, const std::string& what) {
  return CodedError(absl::StatusCode::kInvalidArgument, "W0522",
                    absl::StrCat("edge ", edge, ": ", what));
}

std::string TextOf(const CardEdge& edge) {
  return absl::StrCat(edge.slots, " slots of ", edge.bytes, " bytes with ", edge.initial_tokens,
                      " initial tokens");
}

}  // namespace

std::vector<RankId> PeersOf(const std::vector<CardEdge>& edges) {
  std::set<RankId> peers;
  for (const CardEdge& edge : edges) peers.insert(edge.peer);
  return {peers.begin(), peers.end()};
}

std::string CardSubject(uint32_t epoch, uint16_t role, RankId rank) {
  return absl::StrCat(kCardPrefix, "/", epoch, "/", role, "/", rank);
}

RankId RankOfCardSubject(const std::string& subject) {
  const std::vector<std::string> parts = absl::StrSplit(subject, '/');
  uint32_t epoch = 0, role = 0;
  int rank = -1;
  const bool reads = parts.size() == 4 && absl::SimpleAtoi(parts[1], &epoch) &&
                     absl::SimpleAtoi(parts[2], &role) && absl::SimpleAtoi(parts[3], &rank) &&
                     rank >= 0 && role <= UINT16_MAX;
  // Other spellings of the same numbers (" 7", "+7", "007") are other names.
  const bool is_name =
      reads && subject == CardSubject(epoch, static_cast<uint16_t>(role), RankId(rank));
  return is_name ? RankId(rank) : RankId();
}

std::string EncodeRankCard(const RankCard& card) {
  CardWriter write;
  write(kVersion);
  ForEachField(card, write);
  write(static_cast<uint64_t>(card.edges.size()));
  for (const CardEdge& edge : card.edges) ForEachEdgeField(edge, write);
  return write.Take();
}

absl::StatusOr<RankCard> DecodeRankCard(const std::string& bytes) {
  CardReader read(bytes);
  uint32_t version = 0;
  read(version);
  if (!read.ok() || version != kVersion) return BadCard(absl::StrCat("version ", version));
  RankCard card;
  ForEachField(card, read);
  uint64_t num_edges = 0;
  read(num_edges);
  if (!read.ok() || num_edges > kEdgesMax || !read.Has(num_edges * kEdgeBytes))
    return BadCard("too few bytes");
  card.edges.resize(num_edges);
  for (CardEdge& edge : card.edges) ForEachEdgeField(edge, read);
  if (!read.ok() || !read.at_end())
    return BadCard(absl::StrCat(bytes.size(), " bytes that end elsewhere"));
  if (card.num_ranks < 1 || card.rank.value() < 0 || card.rank.value() >= card.num_ranks ||
      card.landing_bytes < 0 || card.rings_bytes < 0) {
    return BadCard(absl::StrCat("rank ", card.rank, " of ", card.num_ranks));
  }
  for (size_t i = 0; i < card.edges.size(); ++i) {
    if (!IsSound(card, i)) return BadCard(absl::StrCat("an impossible edge ", card.edges[i].edge));
  }
  return card;
}

absl::StatusOr<std::vector<int>> PairEdges(const RankCard& mine, const RankCard& theirs) {
  using Side = std::pair<EdgeId, TransportEdge::Direction>;
  std::map<Side, int> sides;
  for (size_t i = 0; i < theirs.edges.size(); ++i) {
    const CardEdge& edge = theirs.edges[i];
    if (edge.peer == mine.rank &&
        !sides.try_emplace({edge.edge, edge.direction}, static_cast<int>(i)).second) {
      return Disagreement(edge.edge, absl::StrCat("rank ", theirs.rank, " has it twice"));
    }
  }
  size_t num_paired = 0;
  std::map<Side, int> seen;
  std::vector<int> pairs(mine.edges.size(), -1);
  for (size_t i = 0; i < mine.edges.size(); ++i) {
    const CardEdge& edge = mine.edges[i];
    if (edge.peer != theirs.rank) continue;
    const bool out = edge.direction == TransportEdge::Direction::kOutgoing;
    if (!seen.try_emplace({edge.edge, edge.direction}, 0).second) {
      return Disagreement(edge.edge, absl::StrCat("rank ", mine.rank, " has it twice"));
    }
    auto found = sides.find({edge.edge, out ? TransportEdge::Direction::kIncoming
                                            : TransportEdge::Direction::kOutgoing});
    if (found == sides.end()) {
      return Disagreement(edge.edge, absl::StrCat("expected a ", out ? "receiver" : "sender",
                                                  " on rank ", theirs.rank, "; found none"));
    }
    const CardEdge& other = theirs.edges[found->second];
    if (other.slots != edge.slots || other.bytes != edge.bytes ||
        other.initial_tokens != edge.initial_tokens) {
      return Disagreement(edge.edge, absl::StrCat("rank ", mine.rank, " expects ", TextOf(edge),
                                                  ", rank ", theirs.rank, " has ", TextOf(other)));
    }
    if (other.statement != edge.statement) {
      return Disagreement(
          edge.edge,
          absl::StrCat("the plans of rank ", mine.rank, " and of rank ", theirs.rank,
                       " tell different times of the acts at its ends: run the same build on "
                       "all ranks"));
    }
    pairs[i] = found->second;
    ++num_paired;
  }
  if (num_paired != sides.size()) {
    for (const auto& [side, position] : sides) {
      const bool out = side.second == TransportEdge::Direction::kOutgoing;
      const Side other = {side.first, out ? TransportEdge::Direction::kIncoming
                                          : TransportEdge::Direction::kOutgoing};
      if (seen.count(other) == 0) {
        return Disagreement(side.first, absl::StrCat("rank ", theirs.rank, " expects a ",
                                                     out ? "receiver" : "sender", " on rank ",
                                                     mine.rank, ", which has none"));
      }
    }
  }
  return pairs;
}

}  // namespace weir::transport
