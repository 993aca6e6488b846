#include "runtime/collective/reference_compute.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "runtime/base/real.h"

namespace weir::collective {
namespace {

// A number as it is combined, and as it is stored.
template <DType dtype>
struct Real {
  using Sum = float;
  static Sum Load(const char* at) { return RealAt(dtype, at, 0); }
  static void Store(Sum sum, char* at) { SetRealAt(dtype, at, 0, sum); }
};
// Sums of i32 wrap, which unsigned arithmetic does.
struct I32 {
  using Sum = uint32_t;
  static Sum Load(const char* at) {
    uint32_t x;
    std::memcpy(&x, at, sizeof(x));
    return x;
  }
  static void Store(Sum x, char* at) { std::memcpy(at, &x, sizeof(x)); }
};

float Max(float a, float b) { return std::isnan(a) || a > b ? a : b; }
uint32_t Max(uint32_t a, uint32_t b) {
  return std::bit_cast<int32_t>(a) > std::bit_cast<int32_t>(b) ? a : b;
}

// Combines terms as the leaves of a tree whose left half is the largest power of two below their
// number.
template <typename Sum>
Sum Combine(Combiner combiner, const Sum* terms, size_t num_terms) {
  if (num_terms == 1) return terms[0];
  const size_t left = std::bit_floor(num_terms - 1);
  const Sum a = Combine(combiner, terms, left);
  const Sum b = Combine(combiner, terms + left, num_terms - left);
  return combiner == Combiner::kSum ? a + b : Max(a, b);
}

// Returns the combination of `count` elements of all ranks.
template <typename Number>
std::vector<char> Reduce(const std::vector<Operation>& operations, int64_t count) {
  const int64_t size = SizeOf(operations[0].dtype);
  std::vector<char> result(count * size);
  std::vector<typename Number::Sum> terms(operations.size());
  for (int64_t i = 0; i < count; ++i) {
    for (size_t rank = 0; rank < terms.size(); ++rank)
      terms[rank] = Number::Load(operations[rank].from + i * size);
    Number::Store(Combine(operations[0].combiner, terms.data(), terms.size()), &result[i * size]);
  }
  return result;
}

std::vector<char> Reduce(const std::vector<Operation>& operations, int64_t count) {
  switch (operations[0].dtype) {
    case DType::kF32: return Reduce<Real<DType::kF32>>(operations, count);
    case DType::kBF16: return Reduce<Real<DType::kBF16>>(operations, count);
    case DType::kF16: return Reduce<Real<DType::kF16>>(operations, count);
    case DType::kI32:
    case DType::kBool: break;  // a bool is not combined
  }
  return Reduce<I32>(operations, count);
}

std::vector<char> BytesAt(const char* from, int64_t bytes) {
  return std::vector<char>(from, from + bytes);
}

// The moves between each two ranks, in order: {from, to} -> counts or addresses.
template <typename Value>
using ByPair = std::map<std::pair<int, int>, std::vector<Value>>;

}  // namespace

void Compute(const std::vector<Operation>& operations) {
  const Operation& first = operations[0];
  if (first.count == 0) return;
  const int64_t num_ranks = static_cast<int64_t>(operations.size());
  const int64_t block = first.count * SizeOf(first.dtype);
  // All results are made before any output is written, so that operations may work in place.
  std::vector<std::vector<char>> results(num_ranks);
  switch (first.kind) {
    case Operation::Kind::kAllReduce:
      results.assign(num_ranks, Reduce(operations, first.count));
      break;
    case Operation::Kind::kReduceScatter: {
      const std::vector<char> all = Reduce(operations, num_ranks * first.count);
      for (int64_t rank = 0; rank < num_ranks; ++rank)
        results[rank] = BytesAt(&all[rank * block], block);
      break;
    }
    case Operation::Kind::kAllGather: {
      std::vector<char> all;
      for (const Operation& operation : operations)
        all.insert(all.end(), operation.from, operation.from + block);
      results.assign(num_ranks, all);
      break;
    }
    case Operation::Kind::kAllToAll:
      for (int64_t rank = 0; rank < num_ranks; ++rank) {
        for (const Operation& operation : operations)
          results[rank].insert(results[rank].end(), operation.from + rank * block,
                               operation.from + (rank + 1) * block);
      }
      break;
  }
  for (int64_t rank = 0; rank < num_ranks; ++rank)
    std::memcpy(operations[rank].to, results[rank].data(), results[rank].size());
}

std::vector<MoveMismatch> Mismatches(const std::vector<OwnMoves>& moves) {
  ByPair<int64_t> sent, received;
  for (int rank = 0; rank < static_cast<int>(moves.size()); ++rank) {
    for (const SendMove& send : moves[rank].sends) sent[{rank, send.to_rank}].push_back(send.count);
    for (const ReceiveMove& receive : moves[rank].receives)
      received[{receive.from_rank, rank}].push_back(receive.count);
  }
  for (const auto& [pair, counts] : sent) received[pair];
  std::vector<MoveMismatch> mismatches;
  for (const auto& [pair, counts] : received) {
    const std::vector<int64_t>& others = sent[pair];
    for (size_t k = 0; k < std::max(counts.size(), others.size()); ++k) {
      const MoveMismatch move = {pair.first, pair.second, k < others.size() ? others[k] : -1,
                                 k < counts.size() ? counts[k] : -1};
      if (move.sent != move.received) mismatches.push_back(move);
    }
  }
  return mismatches;
}

void Compute(const std::vector<OwnMoves>& moves) {
  ByPair<std::vector<char>> sent;
  for (int rank = 0; rank < static_cast<int>(moves.size()); ++rank) {
    for (const SendMove& send : moves[rank].sends)
      sent[{rank, send.to_rank}].push_back(
          BytesAt(send.from, send.count * SizeOf(moves[rank].dtype)));
  }
  std::map<std::pair<int, int>, size_t> taken;
  for (int rank = 0; rank < static_cast<int>(moves.size()); ++rank) {
    for (const ReceiveMove& receive : moves[rank].receives) {
      const std::pair<int, int> pair = {receive.from_rank, rank};
      const std::vector<char>& bytes = sent[pair][taken[pair]++];
      if (!bytes.empty()) std::memcpy(receive.to, bytes.data(), bytes.size());
    }
  }
}

}  // namespace weir::collective
