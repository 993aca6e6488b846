#include "runtime/transport/ucx_transport.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/transport/ucx_endpoint.h"

namespace weir::transport {
namespace {

class UcxNetworkOfProcess final : public UcxNetwork {
 public:
  absl::Status Start(int num_ranks, const std::vector<RankId>& local_ranks, Exchange* exchange,
                     const UcxTransportOptions& options) {
    network_.num_ranks = num_ranks;
    network_.exchange = exchange;
    network_.options = options;
    network_.host = HostIdentity();
    WEIR_ASSIGN_OR_RETURN(network_.context,
                          UcxContext::Create(static_cast<int>(local_ranks.size()), options));
    endpoint_of_rank_.resize(num_ranks);
    std::vector<int> fds;
    std::vector<WakeThread::OnNews> on_news;
    for (const RankId rank : local_ranks) {
      if (!endpoint_of_rank_.Has(rank) || endpoint_of_rank_[rank] != nullptr) {
        return CodedError(
            absl::StatusCode::kInvalidArgument, "W0522",
            absl::StrCat("rank ", rank, " of ", num_ranks, " cannot be here, or is twice"));
      }
      WEIR_ASSIGN_OR_RETURN(endpoint_of_rank_[rank],
                            UcxEndpoint::Create(&network_, rank, static_cast<int>(fds.size())));
      UcxEndpoint* endpoint = endpoint_of_rank_[rank].get();
      for (int fd : {endpoint->event_fd(), endpoint->timer_fd()}) {
        fds.push_back(fd);
        on_news.push_back([endpoint](uint32_t parking) { endpoint->OnNews(parking); });
      }
    }
    WEIR_ASSIGN_OR_RETURN(network_.wake, WakeThread::Start(std::move(fds), std::move(on_news)));
    return absl::OkStatus();
  }
  ~UcxNetworkOfProcess() override {
    // All endpoints leave before the first is destroyed, since they may be peers of each other.
    for (auto& endpoint : endpoint_of_rank_) {
      if (endpoint != nullptr) endpoint->Close();
    }
    network_.wake.reset();
    endpoint_of_rank_.clear();
  }

  TransportEndpoint* endpoint(RankId rank) override { return endpoint_of_rank_[rank].get(); }
  UcxTraffic Traffic(RankId rank) const override { return endpoint_of_rank_[rank]->traffic(); }

 private:
  UcxEndpoint::Network network_;
  IdVector<RankId, std::unique_ptr<UcxEndpoint>> endpoint_of_rank_;  // null: in another process
};

}  // namespace

absl::StatusOr<std::unique_ptr<UcxNetwork>> UcxNetwork::Create(int num_ranks,
                                                               std::vector<RankId> local_ranks,
                                                               Exchange* exchange,
                                                               const UcxTransportOptions& options) {
  auto network = std::make_unique<UcxNetworkOfProcess>();
  WEIR_RETURN_IF_ERROR(network->Start(num_ranks, local_ranks, exchange, options));
  return std::unique_ptr<UcxNetwork>(std::move(network));
}

}  // namespace weir::transport
