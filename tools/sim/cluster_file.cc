#include "tools/sim/cluster_file.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/text_format.h"
#include "runtime/base/dtype.h"
#include "runtime/base/status.h"
#include "runtime/store/mapped_file.h"
#include "tools/job/message_text.h"

namespace weir::sim {
namespace {

constexpr int64_t kClusterBytesMax = 64 << 20;
constexpr double kDevicesMax = 1 << 20;
constexpr char kExample[] =
    "docs/examples/gpu_cluster.textproto is one; `weir calibrate JOB` writes that of this machine";

// Keeps the first error.
class Checker {
 public:
  explicit Checker(std::string name) : name_(std::move(name)) {}

  void Number(const std::string& where, double value, double least, double most,
              const std::string& hint = "") {
    if (status_.ok() && (std::isnan(value) || value < least || value > most)) {
      status_ = Rejected({"W0702", At(where), absl::StrCat("a number from ", least, " to ", most),
                          absl::StrCat(value), hint});
    }
  }
  void Name(const std::string& where, const std::string& expected, const std::string& found,
            const std::string& hint) {
    if (status_.ok()) status_ = Rejected({"W0701", At(where), expected, found, hint});
  }
  const absl::Status& status() const { return status_; }

 private:
  std::string At(const std::string& where) const { return absl::StrCat(name_, ", ", where); }
  const std::string name_;
  absl::Status status_;
};

constexpr double kNsMax = 1e15;
constexpr double kRateMax = 1e24;

void CheckDevice(const proto::DeviceModel& device, Checker* check) {
  const std::string where = absl::StrCat("device ", device.name());
  check->Number(where + ", memory_bytes", device.memory_bytes(), 0, 1e18);
  check->Number(where + ", bytes_per_second", device.bytes_per_second(), 0, kRateMax);
  check->Number(where + ", act_ns", device.act_ns(), 0, kNsMax);
  check->Number(where + ", kernel_ns", device.kernel_ns(), 0, kNsMax);
  check->Number(where + ", wake_ns", device.wake_ns(), 0, kNsMax);
  check->Number(where + ", cores", device.cores(), 0, 1e6);
  check->Number(where + ", jitter", device.jitter(), 0, 1, "0.05 for five per cent");
  for (const proto::Peak& peak : device.peak()) {
    const std::string at = absl::StrCat(where, ", peak ", peak.dtype());
    if (!DTypeFromName(peak.dtype()))
      check->Name(at, "a dtype", absl::StrCat("\"", peak.dtype(), "\""),
                  "f32, bf16, f16, i32 or bool");
    check->Number(at + ", flops_per_second", peak.flops_per_second(), 1, kRateMax,
                  "312e12 for 312 Tflop/s");
    check->Number(at + ", efficiency", peak.efficiency(), 0, 1);
  }
  for (const proto::KernelCost& kernel : device.kernel()) {
    const std::string at = absl::StrCat(where, ", kernel ", kernel.op(), " ", kernel.shapes());
    if (kernel.op().empty()) check->Name(at, "the name of an op", "none", "`weir ops` lists them");
    check->Number(at + ", ns", kernel.ns(), 0, kNsMax);
    check->Number(at + ", busy_ns", kernel.busy_ns(), 0, kNsMax);
    check->Number(at + ", flops", kernel.flops(), 0, kRateMax);
    check->Number(at + ", bytes", kernel.bytes(), 0, kRateMax);
  }
}

void CheckLink(const std::string& where, const proto::Link& link, Checker* check) {
  check->Number(where + ", latency_ns", link.latency_ns(), 0, kNsMax);
  check->Number(where + ", bytes_per_second", link.bytes_per_second(), 0, kRateMax);
  check->Number(where + ", message_ns", link.message_ns(), 0, kNsMax);
  check->Number(where + ", send_ns", link.send_ns(), 0, kNsMax);
  check->Number(where + ", receive_ns", link.receive_ns(), 0, kNsMax);
  check->Number(where + ", send_bytes_per_second", link.send_bytes_per_second(), 0, kRateMax);
  check->Number(where + ", receive_bytes_per_second", link.receive_bytes_per_second(), 0, kRateMax);
}

absl::Status CheckCluster(const proto::Cluster& cluster, const std::string& name) {
  Checker check(name);
  std::vector<std::string> names;
  if (cluster.device_size() == 0) check.Name("device", "at least one", "none", kExample);
  if (cluster.host_size() == 0) check.Name("host", "at least one", "none", kExample);
  for (const proto::DeviceModel& device : cluster.device()) {
    if (device.name().empty())
      check.Name("device", "a name", "none", "device { name: \"accelerator\" ... }");
    for (const std::string& known : names) {
      if (known == device.name())
        check.Name("device", "names that differ", absl::StrCat("two called ", known), "");
    }
    names.push_back(device.name());
    CheckDevice(device, &check);
  }
  for (int i = 0; i < cluster.host_size(); ++i) {
    const proto::HostGroup& host = cluster.host(i);
    const std::string where =
        absl::StrCat("host ", host.name().empty() ? absl::StrCat(i) : host.name());
    if (std::find(names.begin(), names.end(), host.device()) == names.end()) {
      const std::string nearest = Nearest(host.device(), names);
      check.Name(where + ", device", "the name of a device of this file",
                 absl::StrCat("\"", host.device(), "\""),
                 names.empty()     ? "device { name: \"core\" … }, as `weir calibrate` writes it"
                 : nearest.empty() ? absl::StrCat("one of ", absl::StrJoin(names, ", "))
                                   : nearest);
    }
    check.Number(where + ", count", host.count(), 0, kDevicesMax);
    check.Number(where + ", devices", host.devices(), 1, kDevicesMax, "devices: 8");
    check.Number(where + ", cores", host.cores(), 0, 1e6);
    for (double speed : host.core_speed())
      check.Number(where + ", core_speed", speed, 0.01, 1, "1 is as fast as one core alone");
  }
  // Numbers out of their ranges may have a sum that no integer holds.
  if (check.status().ok())
    check.Number("hosts, all devices", static_cast<double>(NumDevices(cluster)), 1, kDevicesMax);
  CheckLink("within_host", cluster.within_host(), &check);
  CheckLink("between_hosts", cluster.between_hosts(), &check);
  return check.status();
}

}  // namespace

int64_t NumDevices(const proto::Cluster& cluster) {
  int64_t devices = 0;
  for (const proto::HostGroup& group : cluster.host())
    devices += int64_t{std::max(1, group.count())} * group.devices();
  return devices;
}

absl::StatusOr<proto::Cluster> ReadClusterFile(const std::string& path) {
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<store::MappedFile> file,
                        store::MappedFile::Open(path, "description of a cluster"));
  if (file->size() > kClusterBytesMax) {
    return Rejected({"W0700", path, absl::StrCat("at most ", kClusterBytesMax, " bytes"),
                     absl::StrCat(file->size()), kExample});
  }
  return ParseCluster(std::string(file->text()), path);
}

absl::StatusOr<proto::Cluster> ParseCluster(const std::string& text, const std::string& name) {
  proto::Cluster cluster;
  WEIR_RETURN_IF_ERROR(job::ParseMessageText(
      text, {name, "W0700", "a cluster in protobuf text form (proto/cluster.proto)", kExample},
      &cluster));
  WEIR_RETURN_IF_ERROR(CheckCluster(cluster, name));
  return cluster;
}

std::string ClusterText(const proto::Cluster& cluster) {
  google::protobuf::TextFormat::Printer printer;
  printer.SetUseShortRepeatedPrimitives(true);
  std::string text;
  printer.PrintToString(cluster, &text);
  return "# proto-file: proto/cluster.proto\n# proto-message: weir.proto.Cluster\n" + text;
}

}  // namespace weir::sim
