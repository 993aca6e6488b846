#include "tools/plan/place_axes.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "compiler/explain/host_traffic.h"
#include "compiler/job/import_graph.h"
#include "compiler/job/stage_meshes.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "sbp/places.h"
#include "tools/sandbox/run_confined.h"

namespace weir::plan {
namespace {

// An order that sends more than this share of the bytes that the order as written sends is no gain.
constexpr double kNoGain = 0.95;
constexpr size_t kOrdersCompared = 128;

using Order = std::vector<int>;  // positions of mesh axes, from slowest to fastest

sbp::Mesh MeshOf(const proto::Job& job) {
  std::vector<sbp::MeshAxis> axes;
  for (const proto::MeshAxisSpec& axis : job.mesh().axis())
    axes.push_back({axis.name(), axis.size()});
  return sbp::Mesh(std::move(axes));
}

Order AsWritten(const sbp::Mesh& mesh) {
  Order order(mesh.num_axes());
  std::iota(order.begin(), order.end(), 0);
  return order;
}

// Appends the orders in which the axes `inside` lie inside hosts and fill them, alone or together
// with a part of one more axis. The job's order is kept among the axes inside and among the others.
void AddOrders(const sbp::Mesh& mesh, int64_t devices_per_host, const std::vector<bool>& inside,
               std::vector<Order>* orders) {
  Order within, others;
  int64_t devices = 1;
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    (inside[axis] ? within : others).push_back(axis);
    if (inside[axis]) devices *= mesh.size(axis);
  }
  if (devices > devices_per_host || devices_per_host % devices != 0) return;
  const int64_t missing = devices_per_host / devices;
  const auto add = [&](Order order) {
    order.insert(order.end(), within.begin(), within.end());
    orders->push_back(std::move(order));
  };
  if (missing == 1) return add(others);
  for (int axis : others) {
    if (mesh.size(axis) <= missing || mesh.size(axis) % missing != 0) continue;
    Order order = others;
    order.erase(std::find(order.begin(), order.end(), axis));
    order.push_back(axis);
    add(std::move(order));
  }
}

// Returns an order for each way to fill the hosts evenly with whole axes and a part of at most one
// more. Orders that are not listed put the same devices on the same hosts as one that is.
std::vector<Order> OrdersOver(const sbp::Mesh& mesh, int64_t devices_per_host) {
  std::vector<int> wide;  // axes of several devices
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    if (mesh.size(axis) > 1) wide.push_back(axis);
  }
  std::vector<Order> orders;
  for (uint32_t set = 0; set < uint32_t{1} << wide.size(); ++set) {
    std::vector<bool> inside(mesh.num_axes());
    for (size_t i = 0; i < wide.size(); ++i) inside[wide[i]] = (set >> i & 1) != 0;
    AddOrders(mesh, devices_per_host, inside, &orders);
  }
  return orders;
}

// Returns "dp,tp".
std::string NamesOf(const sbp::Mesh& mesh, const Order& order) {
  return absl::StrJoin(
      order, ",", [&mesh](std::string* out, int axis) { out->append(mesh.axes()[axis].name); });
}

void WriteOrder(const sbp::Mesh& mesh, const Order& order, proto::Job* job) {
  job->mutable_mesh()->clear_rank_order();
  if (order == AsWritten(mesh)) return;
  for (int axis : order) job->mutable_mesh()->add_rank_order(mesh.axes()[axis].name);
}

// Compares the orders of a job by a plan without a rhythm, which most of the compiler's time goes
// into.
absl::Status Choose(const sbp::Mesh& mesh, const std::vector<Order>& orders, proto::Job* job,
                    PlacedAxes* placed) {
  const compiler::JobRhythm no_rhythm;
  compiler::CompileOptions options;
  options.mode = compiler::ModeOf(*job);
  options.rhythm = &no_rhythm;
  const absl::StatusOr<std::unique_ptr<compiler::LogicalPlan>> plan =
      compiler::CompileJob(*job, options);
  if (!plan.ok()) return absl::OkStatus();  // whoever compiles the job says why
  const compiler::HostTraffic traffic(**plan);
  const int64_t devices = job->mesh().devices_per_host();
  WEIR_ASSIGN_OR_RETURN(const double as_written, traffic.BytesBetweenHosts((*plan)->places));
  const Order* best = nullptr;
  double best_bytes = kNoGain * as_written;
  for (const Order& order : orders) {
    const sbp::Places places = sbp::PipelinePlaces(mesh, devices, order);
    if (places.host_cut() == nullptr) continue;
    WEIR_ASSIGN_OR_RETURN(const double bytes, traffic.BytesBetweenHosts(places));
    if (bytes >= best_bytes) continue;
    best = &order;
    best_bytes = bytes;
  }
  if (best == nullptr) return absl::OkStatus();
  *placed = {PlacedAxes::By::kChoice, best_bytes, as_written, ""};
  WriteOrder(mesh, *best, job);
  return absl::OkStatus();
}

int64_t NumHosts(const compiler::LogicalPlan& plan) {
  return plan.places.HostOf(RankId(static_cast<int32_t>(plan.places.num_ranks()) - 1)) + 1;
}

double BytesBetweenHosts(const std::vector<BoxingCost>& boxings) {
  return std::accumulate(
      boxings.begin(), boxings.end(), 0.0,
      [](double sum, const BoxingCost& boxing) { return sum + boxing.bytes_between_hosts; });
}

// Returns "pp, sp and dp".
std::string Listed(const std::vector<std::string>& names) {
  if (names.size() < 2) return absl::StrJoin(names, "");
  const std::vector<std::string> first(names.begin(), names.end() - 1);
  return absl::StrCat(absl::StrJoin(first, ", "), " and ", names.back());
}

// Returns the order of the ranks of a job. Precondition: the compiler takes the job's mesh.
Order OrderOf(const sbp::Mesh& mesh, const proto::Job& job) {
  const std::vector<std::string> names(job.mesh().rank_order().begin(),
                                       job.mesh().rank_order().end());
  return names.empty() ? AsWritten(mesh) : *mesh.OrderOf(names, "mesh.rank_order");
}

// Returns "tp inside hosts, dp between them", with `hosts` for the first word of hosts.
// Precondition: hosts cut the ranks evenly.
std::string AxesText(const sbp::Mesh& mesh, const Order& order, int64_t devices_per_host,
                     const std::string& hosts) {
  std::vector<std::string> inside, between, both, parts;
  int64_t stride = 1;  // from rank to rank, along the axis
  for (size_t i = order.size(); i > 0; --i) {
    const sbp::MeshAxis& axis = mesh.axes()[order[i - 1]];
    if (axis.size == 1) continue;
    std::vector<std::string>* const kind = stride * axis.size <= devices_per_host ? &inside
                                           : stride >= devices_per_host           ? &between
                                                                                  : &both;
    kind->insert(kind->begin(), axis.name);
    stride *= axis.size;
  }
  std::string where = hosts;
  const auto add = [&](const std::vector<std::string>& names, const std::string& text) {
    if (names.empty()) return;
    parts.push_back(absl::StrCat(Listed(names), text, std::exchange(where, "them")));
  };
  add(inside, " inside ");
  add(both, " inside and between ");
  add(between, " between ");
  return absl::StrJoin(parts, ", ");
}

// Adds what --place takes besides an order to what a wrong order's error says to try.
absl::Status WithOtherWords(const absl::Status& wrong_order) {
  Problem problem = *ProblemOf(wrong_order);
  absl::StrAppend(&problem.hint, "; or ", kPlaceAsWritten, ", the order of the job; or ",
                  kPlaceAuto, ", which chooses");
  return Rejected(problem);
}

// Returns whether some place has devices that boxing sees as blocks of one host.
bool CutsSomePlace(const sbp::Places& places) {
  for (int64_t place = 0; place < places.size(); ++place) {
    if (places.host_cut(place) != nullptr) return true;
  }
  return false;
}

std::string InsteadText(const PlacedAxes& placed) {
  return absl::StrCat(" instead of ", BytesText(placed.bytes_as_written),
                      " in the order as written; --place ", kPlaceAsWritten, " keeps that");
}

}  // namespace

absl::StatusOr<PlacedAxes> PlaceAxes(const std::string& place, proto::Job* job) {
  const sbp::Mesh mesh = MeshOf(*job);
  PlacedAxes placed;
  if (place == kPlaceAsWritten) return placed;
  if (place != kPlaceAuto) {
    WEIR_RETURN_IF_ERROR(mesh.Validate());
    WEIR_RETURN_IF_ERROR(
        compiler::CheckEqualStages(*job, absl::StrCat("--place ", place),
                                   "remove --place: ranks are numbered stage after stage"));
    std::vector<std::string> names;
    for (absl::string_view name : absl::StrSplit(place, ','))
      names.emplace_back(absl::StripAsciiWhitespace(name));
    const absl::StatusOr<Order> order = mesh.OrderOf(names, absl::StrCat("--place ", place));
    if (!order.ok()) return WithOtherWords(order.status());
    WriteOrder(mesh, *order, job);
    placed.by = PlacedAxes::By::kNamed;
    return placed;
  }
  const int64_t devices = job->mesh().devices_per_host();
  if (compiler::HasStageMeshes(*job) || job->mesh().rank_order_size() > 0 || devices < 2 ||
      !mesh.Validate().ok() || mesh.num_ranks() > compiler::kDevicesMax ||
      mesh.num_ranks() <= devices || mesh.num_ranks() % devices != 0 ||
      sbp::PipelinePlaces(mesh, devices).host_cut() == nullptr)
    return placed;
  const std::vector<Order> orders = OrdersOver(mesh, devices);
  if (orders.size() > kOrdersCompared)
    placed.why_not = absl::StrCat("the axes stay in the order as written, because ", orders.size(),
                                  " orders are too many to compare (--place)");
  if (orders.size() < 2 || orders.size() > kOrdersCompared) return placed;
  WEIR_RETURN_IF_ERROR(
      sandbox::RunConfined([&]() -> absl::Status { return Choose(mesh, orders, job, &placed); }));
  return placed;
}

std::string PlacedText(const PlacedAxes& placed, const proto::Job& job) {
  if (placed.by == PlacedAxes::By::kJob) return placed.why_not;
  const sbp::Mesh mesh = MeshOf(job);
  const Order order = OrderOf(mesh, job);
  const int64_t devices = job.mesh().devices_per_host();
  if (mesh.num_ranks() > compiler::kDevicesMax ||
      sbp::PipelinePlaces(mesh, devices, order).host_cut() == nullptr)
    return "";
  const std::string axes = AxesText(mesh, order, devices, "hosts");
  if (placed.by == PlacedAxes::By::kNamed) return absl::StrCat(axes, " (--place)");
  return absl::StrCat(axes, ": ", BytesText(placed.bytes), " a step between hosts",
                      InsteadText(placed));
}

std::string HostsText(const compiler::LogicalPlan& plan, const std::vector<BoxingCost>& boxings,
                      const PlacedAxes& placed) {
  const int64_t hosts = NumHosts(plan);
  if (hosts < 2) return "";
  const int64_t devices = plan.job->mesh().devices_per_host();
  const bool is_whole = plan.places.num_ranks() % devices == 0;
  std::string text = absl::StrCat(hosts, is_whole ? " with " : " with up to ", devices,
                                  devices == 1 ? " device each" : " devices each");
  if (plan.places.host_cut() != nullptr) {
    absl::StrAppend(&text, "; ",
                    AxesText(plan.mesh, OrderOf(plan.mesh, *plan.job), devices, "them"));
  } else if (devices > 1 && !plan.places.has_equal_meshes()) {
    absl::StrAppend(&text, CutsSomePlace(plan.places)
                               ? ", which cut the mesh of each stage by itself"
                               : ", which do not cut the meshes evenly, so moves send each device "
                                 "its own copy");
  } else if (devices > 1) {
    absl::StrAppend(&text, ", which do not cut the mesh evenly, so transfers know no hosts");
    const std::vector<Order> orders =
        compiler::HasStageMeshes(*plan.job) ? std::vector<Order>() : OrdersOver(plan.mesh, devices);
    if (!orders.empty())
      absl::StrAppend(&text, "; `--place ", NamesOf(plan.mesh, orders.front()),
                      "` would change that");
  }
  const bool is_chosen = placed.by == PlacedAxes::By::kChoice;
  if (const double bytes = BytesBetweenHosts(boxings); bytes > 0 || is_chosen)
    absl::StrAppend(&text, "; ", BytesText(bytes), " a step between hosts");
  if (is_chosen && plan.mode == compiler::PlanMode::kTrain)
    text += InsteadText(placed);
  else if (is_chosen)
    text += "; the axes lie as in training";
  if (!placed.why_not.empty()) absl::StrAppend(&text, "; ", placed.why_not);
  return text;
}

}  // namespace weir::plan
