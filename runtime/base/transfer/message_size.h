// The size of the messages that a kernel of a transfer makes, for the costs of acts. A sender acts
// once for each chunk of the receiver, and many of these messages may be short or empty: in a
// gather from p ranks, each sender has elements of about one chunk in p. Thread rule: pure
// functions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/base/transfer/transfer.h"

namespace weir {

// Returns the elements of all messages that the kernel makes together, which are those of
// MessageElements. 0: the kernel makes no message. Precondition: no flaw, and as many chunks as the
// receiver's elements take.
inline int64_t TotalMessageElements(const Transfer& transfer) {
  const auto* pack = std::get_if<ExchangePack>(&transfer);
  if (pack == nullptr) return 0;
  int64_t elements = 0;
  for (const ExchangePiece& piece : pack->pieces) elements += piece.rect.volume();
  return elements;
}

// Returns the mean of the elements of one message over the kernel's acts, rounded up.
inline int64_t MeanMessageElements(const Transfer& transfer, int64_t num_chunks) {
  const int64_t chunks = std::max<int64_t>(1, num_chunks);
  return (TotalMessageElements(transfer) + chunks - 1) / chunks;
}

// Returns the bytes that each rank of a collective sends if the ranks stand in a ring, or of an
// all-to-all sends to the others, for the costs of acts. `bytes`: of the smaller operand.
inline double RingBytes(const Collective& collective, int64_t bytes) {
  const auto size = static_cast<double>(collective.ranks.size());
  double shards = 1;
  if (collective.kind == Collective::Kind::kAllReduce) shards = 2 / size;
  if (collective.kind == Collective::Kind::kAllToAll) shards = 1 / size;
  return shards * (size - 1) * static_cast<double>(bytes);
}

}  // namespace weir
