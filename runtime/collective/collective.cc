#include "runtime/collective/collective.h"

#include <set>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/collective/operation_check.h"

namespace weir::collective {
namespace {

constexpr int64_t kWarmUpElements = 4;  // of 4 bytes: blocks of ranks are 16-byte aligned
constexpr int64_t kWarmUpBlock = kWarmUpElements * 4;

// Every address is below 2^48, so sums of an address and sizes do not overflow.
constexpr int64_t kBytesMax = int64_t{1} << 47;

struct Extent {
  const char* begin = nullptr;
  int64_t bytes = 0;
};

bool Overlap(const Extent& a, const Extent& b) {
  return a.bytes > 0 && b.bytes > 0 && a.begin < b.begin + b.bytes && b.begin < a.begin + a.bytes;
}

const char* NameOf(Operation::Kind kind) {
  switch (kind) {
    case Operation::Kind::kAllReduce: return "all-reduce";
    case Operation::Kind::kReduceScatter: return "reduce-scatter";
    case Operation::Kind::kAllGather: return "all-gather";
    case Operation::Kind::kAllToAll: return "all-to-all";
  }
  return "?";
}

absl::Status Broken(const CommunicatorSpec& spec, const std::string& text,
                    const std::string& expected, const std::string& found) {
  return ErrorOf(absl::StatusCode::kInvalidArgument,
                 {.code = "W0951",
                  .where = absl::StrCat(Place(spec), ", ", text),
                  .expected = expected,
                  .found = found});
}

bool IsMovable(DType dtype) {
  return IsReal(dtype) || dtype == DType::kI32 || dtype == DType::kBool;
}

// Returns what is wrong with `count` elements at `at`, or "".
std::string FlawOf(const char* at, int64_t count, DType dtype) {
  if (count == 0) return "";
  if (at == nullptr) return "no address";
  if (reinterpret_cast<uintptr_t>(at) % SizeOf(dtype) != 0) return "another address";
  return "";
}

int64_t BlocksFrom(Operation::Kind kind, int size) {
  return kind == Operation::Kind::kReduceScatter || kind == Operation::Kind::kAllToAll ? size : 1;
}
int64_t BlocksTo(Operation::Kind kind, int size) {
  return kind == Operation::Kind::kAllGather || kind == Operation::Kind::kAllToAll ? size : 1;
}

// Returns whether the operation's memory is one of the places where it may work in place.
bool IsInPlace(const CommunicatorSpec& spec, const Operation& operation) {
  const int64_t block = operation.count * SizeOf(operation.dtype);
  switch (operation.kind) {
    case Operation::Kind::kAllReduce: return operation.to == operation.from;
    case Operation::Kind::kReduceScatter: return operation.to == operation.from + spec.rank * block;
    case Operation::Kind::kAllGather: return operation.from == operation.to + spec.rank * block;
    case Operation::Kind::kAllToAll: return false;
  }
  return false;
}

}  // namespace

std::string Place(const CommunicatorSpec& spec) {
  return absl::StrCat("group ", spec.group, ", epoch ", spec.epoch, ", ", Member(spec, spec.rank),
                      " of ", spec.size());
}

std::string Member(const CommunicatorSpec& spec, int place) {
  if (place < 0 || place >= spec.size()) return absl::StrCat("place ", place);
  return absl::StrCat("place ", place, " (rank ", spec.ranks[place], ")");
}

std::string Text(const Operation& operation) {
  const std::string combiner =
      IsReduction(operation.kind) ? absl::StrCat(" (", Name(operation.combiner), ")") : "";
  return absl::StrCat(NameOf(operation.kind), combiner, " of ", operation.count, " ",
                      Name(operation.dtype));
}

std::string Text(const Moves& moves) { return absl::StrCat("send-receive of ", Name(moves.dtype)); }

int64_t BytesOf(const Operation& operation, int size) {
  return (BlocksFrom(operation.kind, size) + BlocksTo(operation.kind, size)) * operation.count *
         SizeOf(operation.dtype);
}

int64_t BytesOf(const Moves& moves) {
  int64_t count = 0;
  for (const SendMove& send : moves.sends) count += send.count;
  for (const ReceiveMove& receive : moves.receives) count += receive.count;
  return count * SizeOf(moves.dtype);
}

absl::Status Overdue(const CommunicatorSpec& spec, int64_t number, const std::string& text,
                     int64_t bytes, int64_t waited_ms) {
  return ErrorOf(absl::StatusCode::kDeadlineExceeded,
                 {.code = "W0953",
                  .where = absl::StrCat(Place(spec), ", operation ", number),
                  .expected = absl::StrCat("its ", text, " (", bytes, " bytes) to end within ",
                                           spec.overdue_ms, " ms of its issue"),
                  .found = absl::StrCat("it has not ended after ", waited_ms, " ms"),
                  .hint = "look for the rank of the group that has not issued this operation"});
}

absl::Status CheckSpec(const CommunicatorSpec& spec) {
  const std::set<RankId> distinct(spec.ranks.begin(), spec.ranks.end());
  if (0 <= spec.rank && spec.rank < spec.size() &&
      static_cast<int>(distinct.size()) == spec.size() && spec.epoch >= 0 && spec.limit_ms > 0 &&
      spec.overdue_ms >= 0)
    return absl::OkStatus();
  return ErrorOf(absl::StatusCode::kInvalidArgument,
                 {.code = "W0952",
                  .where = Place(spec),
                  .expected = "a place in a group of distinct ranks, an epoch of at least 0, and "
                              "positive limits",
                  .found = absl::StrCat("limits of ", spec.limit_ms, " ms for peers and ",
                                        spec.overdue_ms, " ms for operations")});
}

absl::Status CheckOperation(const CommunicatorSpec& spec, const Operation& operation) {
  const std::string text = Text(operation);
  if (!IsMovable(operation.dtype) ||
      (IsReduction(operation.kind) && operation.dtype == DType::kBool))
    return Broken(spec, text, "elements that can be combined, such as f32", "a type that cannot");
  if (operation.count < 0 || operation.count > kBytesMax / SizeOf(operation.dtype) / spec.size())
    return Broken(spec, text, "a count of at least 0 that fits into memory", "another count");
  const std::string aligned =
      absl::StrCat("addresses that are multiples of ", SizeOf(operation.dtype), " bytes");
  for (const char* at : {operation.from, static_cast<const char*>(operation.to)}) {
    const std::string flaw = FlawOf(at, operation.count, operation.dtype);
    if (!flaw.empty()) return Broken(spec, text, aligned, flaw);
  }
  const int64_t block = operation.count * SizeOf(operation.dtype);
  const Extent from{operation.from, block * BlocksFrom(operation.kind, spec.size())};
  const Extent to{operation.to, block * BlocksTo(operation.kind, spec.size())};
  if (Overlap(from, to) && !IsInPlace(spec, operation))
    return Broken(spec, text,
                  "an output that is apart from the input, or where the kind works in place",
                  "an output that overlaps the input otherwise");
  return absl::OkStatus();
}

absl::Status CheckMoves(const CommunicatorSpec& spec, const Moves& moves) {
  const std::string text = Text(moves);
  std::vector<Extent> sent, received;
  const auto check = [&](const char* verb, int peer, int64_t count, const char* at) {
    const std::string move = absl::StrCat(text, ", ", verb, " rank ", peer);
    if (peer < 0 || peer >= spec.size())
      return Broken(spec, move, absl::StrCat("a rank below ", spec.size()), "another rank");
    if (count < 0 || count > kBytesMax / SizeOf(moves.dtype))
      return Broken(spec, move, "a count of at least 0 that fits into memory", absl::StrCat(count));
    const std::string flaw = FlawOf(at, count, moves.dtype);
    if (flaw.empty()) return absl::OkStatus();
    return Broken(spec, move,
                  absl::StrCat("an address that is a multiple of ", SizeOf(moves.dtype), " bytes"),
                  flaw);
  };
  for (const SendMove& send : moves.sends) {
    WEIR_RETURN_IF_ERROR(check("send to", send.to_rank, send.count, send.from));
    sent.push_back({send.from, send.count * SizeOf(moves.dtype)});
  }
  for (const ReceiveMove& receive : moves.receives) {
    WEIR_RETURN_IF_ERROR(check("receive from", receive.from_rank, receive.count, receive.to));
    const Extent extent{receive.to, receive.count * SizeOf(moves.dtype)};
    for (const auto& others : {sent, received}) {
      for (const Extent& other : others) {
        if (Overlap(extent, other))
          return Broken(spec, text, "receives that are apart from each other and from the sends",
                        absl::StrCat("a receive from rank ", receive.from_rank, " that overlaps"));
      }
    }
    received.push_back(extent);
  }
  return absl::OkStatus();
}

std::string IdSubject(const CommunicatorSpec& spec) {
  return absl::StrCat("collective/", spec.epoch, "/", spec.ranks.front(), "/", spec.group);
}

RankId RankOfIdSubject(const std::string& subject) {
  const std::vector<std::string> parts = absl::StrSplit(subject, absl::MaxSplits('/', 3));
  CommunicatorSpec spec;
  int rank = -1;
  if (parts.size() != 4 || !absl::SimpleAtoi(parts[1], &spec.epoch) ||
      !absl::SimpleAtoi(parts[2], &rank) || rank < 0)
    return RankId();
  spec.ranks = {RankId(rank)};
  spec.group = parts[3];
  // Other spellings of the same numbers (" 7", "+7", "007") are other names.
  return subject == IdSubject(spec) ? spec.ranks.front() : RankId();
}

absl::StatusOr<std::unique_ptr<Communicator>> CreateOver(transport::Exchange* exchange,
                                                         CollectiveLibrary* library,
                                                         CommunicatorSpec spec) {
  WEIR_RETURN_IF_ERROR(CheckSpec(spec));
  const std::string key = IdSubject(spec);
  if (spec.rank == 0) {
    WEIR_ASSIGN_OR_RETURN(spec.unique_id, library->NewUniqueId());
    WEIR_RETURN_IF_ERROR(At(Place(spec), exchange->Publish(key, spec.unique_id)));
  } else {
    absl::StatusOr<std::string> id = exchange->Fetch(key);
    if (!id.ok()) return At(Place(spec), id.status());
    spec.unique_id = *std::move(id);
  }
  return library->Create(spec);
}

int64_t WarmUpBytes(int size) { return 2 * size * kWarmUpBlock; }

absl::Status WarmUp(Communicator* communicator, char* scratch, device::CudaStream stream) {
  const int size = communicator->size();
  char* const to = scratch + size * kWarmUpBlock;
  for (const Operation::Kind kind : {Operation::Kind::kAllReduce, Operation::Kind::kReduceScatter,
                                     Operation::Kind::kAllGather, Operation::Kind::kAllToAll}) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      WEIR_RETURN_IF_ERROR(communicator->Run(
          {.kind = kind, .dtype = dtype, .count = kWarmUpElements, .from = scratch, .to = to},
          stream));
    }
  }
  std::vector<SendMove> sends;
  std::vector<ReceiveMove> receives;
  for (int peer = 0; peer < size; ++peer) {
    sends.push_back({peer, kWarmUpElements, scratch + peer * kWarmUpBlock});
    receives.push_back({peer, kWarmUpElements, to + peer * kWarmUpBlock});
  }
  return communicator->SendReceive({.sends = sends, .receives = receives}, stream);
}

}  // namespace weir::collective
