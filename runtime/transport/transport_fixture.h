// Tests of transports share these: a network of two ranks or more to try, and a receiver that
// records what comes. Thread rule: the test's thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/id_vector.h"
#include "runtime/transport/transport.h"

namespace weir::transport {

// A TransportFixture has two ranks or more of one network.
class TransportFixture {
 public:
  virtual ~TransportFixture() = default;
  virtual TransportEndpoint* endpoint(RankId rank) = 0;
  // Connects all ranks and returns the status of each.
  virtual std::vector<absl::Status> ConnectAll() = 0;
  virtual void MoveAll() = 0;
  // Waits until `done` is true, where other threads or the kernel bring `done` about. Returns false
  // at the limit.
  virtual bool Await(const std::function<bool()>& done) {
    MoveAll();
    return done();
  }
};
// Connects one rank after the other, for networks of one process.
inline std::vector<absl::Status> ConnectInTurn(TransportFixture& fixture, int num_ranks) {
  std::vector<absl::Status> statuses;
  for (const RankId rank : IdRange<RankId>(num_ranks))
    statuses.push_back(fixture.endpoint(rank)->Connect());
  return statuses;
}
using TransportFixtureFactory = std::unique_ptr<TransportFixture> (*)(int num_ranks);

// Records the messages that Poll hands over: "token e slot sequence payload" or "credit e slot".
class RecordingReceiver final : public MessageReceiver {
 public:
  absl::Status OnToken(EdgeHandle edge, const MessageHeader& header) override {
    tokens.push_back(header);
    log.push_back("token " + absl::StrCat(edge) + " " + std::to_string(header.slot) + " " +
                  std::to_string(header.sequence));
    return error_at == static_cast<int>(log.size()) ? absl::DataLossError("refused")
                                                    : absl::OkStatus();
  }
  absl::Status OnCredit(EdgeHandle edge, int32_t slot) override {
    log.push_back("credit " + absl::StrCat(edge) + " " + std::to_string(slot));
    return absl::OkStatus();
  }
  std::vector<std::string> log;
  std::vector<MessageHeader> tokens;
  int error_at = -1;
};

}  // namespace weir::transport
