// The expected time of a boxing, by closed forms of its layouts. A boxing from partial parts first
// merges them (a reduce-scatter), and then every device gathers what it lacks; each of the two is
// an exchange, in which a device packs a message for each peer, the messages pass the links, and
// the device fills its new shard. The forms are those of sbp/boxing.h for even parts.
//
// The bytes are those of sbp/boxing.h on average over devices, or within a factor of 2 where
// partials are merged and other axes change, too.
//
// The search over layouts asks for the time of thousands of boxings, and must not plan each of
// them. Not here: waiting for other devices, and what else a device does meanwhile. Thread rule:
// one thread per object.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/node_hash_map.h"
#include "compiler/cost/cost_model.h"
#include "sbp/layout.h"
#include "sbp/places.h"

namespace weir::compiler {

struct BoxingTime {
  double device_ns = 0;  // acts and kernels that pack and fill, which keep the device
  double link_ns = 0;    // until the last message has passed its link
  int64_t exchanges = 0;
  double sent_bytes = 0;  // by one device

  // Returns the time until the tensor has its new layout, if the device has nothing else to do. A
  // device fills a chunk after it has sent the chunk to everybody, so links wait for devices, and
  // devices for links.
  double AloneNs() const { return device_ns + link_ns; }
};

// ExchangePieces says whether an exchange is cut into chunks or its tensors move whole. Tensors in
// a window of calls move whole (Runtime::gather_ahead).
enum class ExchangePieces : uint8_t { kChunks, kWhole };

class BoxingCosts {
 public:
  // The times are those of the first device of the first place, where groups of devices have the
  // most peers on other hosts that they can have. `costs` outlives the object.
  BoxingCosts(const CostModel* costs, sbp::Places places, int64_t chunk_bytes_max);

  // Preconditions: the layouts are valid for `type` over the mesh of the first place, and no axis
  // goes from a split or a copy to a partial.
  const BoxingTime& Of(const sbp::TensorType& type, const sbp::Layout& from, const sbp::Layout& to,
                       ExchangePieces pieces = ExchangePieces::kChunks);

  // Returns the bytes that the first device has of the tensor.
  double LocalBytes(const sbp::TensorType& type, const sbp::Layout& layout) const;

  // Returns the time of sending the part of a device to the next stage. Zero with one stage.
  BoxingTime ToNextStage(const sbp::TensorType& type, const sbp::Layout& layout);

 private:
  // The devices that differ only in some axes of the mesh, as the first device sees them.
  struct Group {
    int64_t size = 1;
    int64_t within_host = 1;  // of them on the first device's host, with itself
  };
  const Group& GroupOf(uint32_t axes);
  // An exchange of a group: a device sends `message` bytes to each other member, has `own` bytes of
  // the tensor before and `filled` bytes after.
  struct Exchange {
    double message = 0, own = 0, filled = 0;
    ExchangePieces pieces = ExchangePieces::kChunks;
  };
  void AddMerge(const Group& group, double before, ExchangePieces pieces, BoxingTime* time);
  void AddGather(const Group& group, double after, ExchangePieces pieces, BoxingTime* time);
  void AddExchange(LinkLevel level, int64_t peers, const Exchange& exchange, BoxingTime* time);
  void AddOverBothLevels(const Group& group, const Exchange& exchange, BoxingTime* time);
  // Returns the bytes of its new shard that a device does not have, on average over devices with a
  // new shard that is not empty.
  double LackingBytes(const sbp::TensorType& type, const sbp::Layout& from,
                      const sbp::Layout& to) const;
  enum class Kernel : uint8_t { kPack, kFill };
  double KernelNs(Kernel kernel, double bytes);
  BoxingTime TimeOf(const sbp::TensorType& type, const sbp::Layout& from, const sbp::Layout& to,
                    ExchangePieces pieces);

  const CostModel* const costs_;
  const sbp::Places places_;
  const double chunk_bytes_max_;  // of the job; 0: the default
  const bool over_hosts_;         // boxings go within hosts first, then between them
  int64_t devices_on_host_ = 1;
  std::map<uint32_t, Group> groups_;
  absl::flat_hash_map<int64_t, double> kernels_[2];     // by Kernel, by elements
  absl::node_hash_map<std::string, BoxingTime> known_;  // by the bytes of type and layouts
};

}  // namespace weir::compiler
