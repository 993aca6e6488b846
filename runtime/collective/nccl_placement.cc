#include "runtime/collective/nccl_placement.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"

namespace weir::collective {
namespace {

constexpr char kWhere[] = "runtime.collectives";

}  // namespace

absl::Status CheckNcclPlacement(const NcclPlacement& placement) {
  if (placement.device_kind == "cuda-emulated") return absl::OkStatus();
  if (placement.device_kind != "cuda") {
    return Rejected({"W0957", kWhere, "devices of kind cuda, whose collectives NCCL does",
                     absl::StrCat("NCCL on devices of kind ",
                                  placement.device_kind.empty() ? "cpu" : placement.device_kind),
                     "runtime.device=cuda, or runtime.collectives=EXCHANGES; LOCAL does the same "
                     "collectives on CPUs"});
  }
  if (placement.ranks_here > 1) {
    return Rejected(
        {"W0958", kWhere, "one rank in each process, as NCCL needs",
         absl::StrCat(placement.ranks_here, " ranks in one process"),
         absl::StrCat("--processes ", placement.num_ranks, ", or runtime.collectives=EXCHANGES")});
  }
  const bool share = placement.num_gpus != NcclPlacement::kGpusUnknown &&
                     placement.devices_on_host > placement.num_gpus && !SharesGpus();
  if (!share) return absl::OkStatus();
  return Rejected({"W0959", kWhere, "a GPU of its own for each rank of a host, as NCCL needs",
                   absl::StrCat(placement.devices_on_host, " ranks on a host with ",
                                placement.num_gpus, placement.num_gpus == 1 ? " GPU" : " GPUs"),
                   "fewer devices in the mesh, more hosts, or runtime.collectives=EXCHANGES"});
}

bool SharesGpus() {
  const char* const value = std::getenv("WEIR_NCCL_SHARE_GPU");
  return value != nullptr && std::string(value) == "1";
}

void ShareGpu(RankId rank) {
  if (!SharesGpus()) return;
  ::setenv("NCCL_HOSTID", absl::StrCat("weir rank ", rank).c_str(), /*overwrite=*/1);
  constexpr std::pair<const char*, const char*> kSockets[] = {
      {"NCCL_P2P_DISABLE", "1"}, {"NCCL_SHM_DISABLE", "1"}, {"NCCL_NET", "Socket"},
      {"NCCL_ALGO", "Ring"},     {"NCCL_PROTO", "Simple"},  {"NCCL_SOCKET_IFNAME", "lo"}};
  for (const auto& [name, value] : kSockets) ::setenv(name, value, /*overwrite=*/0);
}

}  // namespace weir::collective
