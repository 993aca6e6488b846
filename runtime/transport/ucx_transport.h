// The transport between processes and hosts, over UCX: shared memory on the same host, TCP
// otherwise. Each rank of this process has one UCX worker, which only the rank's thread uses.
//
// On shared memory the consumer's landing buffers are mapped into the producer, which computes
// straight into them; only a header crosses, through a ring in memory of the consumer
// (message_ring.h). UCX carries what finds its ring full, and the bell that wakes a rank which
// sleeps. On TCP, UCX reads the producer's slot and the data
// lands in the consumer's slot. A credit is a separate message in the other direction. UCX does not
// order active messages of different sizes, so both sides go by sequence numbers.
//
// Strangers at the TCP port are turned away before UCX hears them, and the port is closed once all
// peers are connected (ucx_door.h). Shared memory has no name and dies with its processes.
//
// Nothing from the wire is trusted. A message carries the job's key, epoch, role, sender and edge,
// all checked against the local edges; its payload must be of the announced size, fit the slot and
// have the announced CRC32C. Messages of another job or epoch are dropped and counted; a wrong
// message of this job ends the Poll with kDataLoss. Peers' addresses come through the Exchange in
// an authenticated envelope, and reach UCX only if the envelope is whole. UCX does not notice most
// deaths of peers: the control plane does.
//
// Sleeping: Park arms the worker. One thread per network waits for the file descriptors of all of
// the network's workers and calls the wake hook of the worker that has news. A worker cannot be
// armed while a peer is in the middle of sending. If that state lasts (the peer is stopped, or gets
// no core), a timer wakes the rank, ever more seldom. No thread spins. Thread rule: as transport.h;
// construction and destruction of the network happen on one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/transport/exchange.h"
#include "runtime/transport/transport.h"

namespace weir::transport {

// The code of the error of a rank whose connection to another rank broke while both had to live.
inline constexpr char kBrokenConnection[] = "W0980";

struct UcxTransportOptions {
  enum class Lanes : uint8_t {
    kAutomatic,  // shared memory where both ranks share a host, else TCP
    kSharedMemory,
    kTcp,
  };
  Lanes lanes = Lanes::kAutomatic;
  std::string interface = "lo";  // to which TCP binds; "lo": all processes are on this host
  uint32_t epoch = 1;
  uint16_t role = 0;    // tells networks of one job apart, such as training and evaluation
  std::string job_key;  // secret of the job, 32 bytes; empty only in tests without one
  enum class Checksum : uint8_t { kNone, kCrc32c } checksum = Checksum::kCrc32c;
  int64_t connect_limit_ms = 30'000;  // for peers whose address is already published
};

struct UcxTraffic {
  int64_t foreign_messages = 0;   // of another job: dropped
  int64_t fenced_messages = 0;    // of another epoch or role: dropped
  int64_t pending_sends_max = 0;  // the most that were ever under way at once in UCX
  int64_t sends = 0;       // of tokens, credits and greetings, several of which may be in one
  int64_t ring_sends = 0;  // of those, the sends through message rings
};

class UcxNetwork : public TransportNetwork {
 public:
  // `local_ranks` of `num_ranks` are in this process. `exchange` must outlive the network.
  // kUnavailable if UCX has no such lanes here, with the lanes that it has.
  static absl::StatusOr<std::unique_ptr<UcxNetwork>> Create(int num_ranks,
                                                            std::vector<RankId> local_ranks,
                                                            Exchange* exchange,
                                                            const UcxTransportOptions& options);
  virtual UcxTraffic Traffic(RankId rank) const = 0;
};

}  // namespace weir::transport
