#include "tools/sim/product_ways.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "actors/plan/plan.h"
#include "compiler/compile.h"
#include "google/protobuf/text_format.h"
#include "ops/defs/product_class.h"
#include "ops/kernels/cpu/processor_kernels.h"
#include "ops/kernels/kernel.h"
#include "runtime/base/problem.h"
#include "runtime/base/product_codec.h"
#include "runtime/base/real.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "runtime/device/thread_team.h"
#include "runtime/store/mapped_file.h"
#include "runtime/store/whole_file.h"
#include "tools/job/message_text.h"
#include "tools/sim/calibrate.h"
#include "tools/sim/job_costs.h"

namespace weir::sim {
namespace {

constexpr int kRoundsMax = 9, kRoundsMin = 3;
constexpr double kRoundNs = 2e6;  // at least, for each way
constexpr double kClassNs = 3e9;  // about at most, for all rounds
constexpr double kClearGain = 1.03;
constexpr int64_t kFileBytesMax = 16 << 20;
constexpr char kMeasureAgain[] = "`weir calibrate JOB --keep` measures anew";

// Returns the time of this thread's own work, so that a busy machine disturbs little.
double ThreadNs() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

struct FreeMemory {
  void operator()(void* memory) const { ::free(memory); }
};
using Memory = std::unique_ptr<void, FreeMemory>;

Memory Allocate(int64_t bytes) {
  return Memory(::aligned_alloc(64, static_cast<size_t>(bytes + 127) / 64 * 64));
}

// Returns numbers in [-1, 1), so that no arithmetic is denormal.
Memory Numbers(const TensorSlice& slice) {
  Memory memory = Allocate(slice.bytes());
  uint32_t state = 1;
  for (int64_t i = 0; i < slice.num_elements(); ++i) {
    state = state * 1664525 + 1013904223;
    const float number = static_cast<float>(state >> 9) / (1 << 22) - 1;
    SetRealAt(slice.dtype, memory.get(), i, number);
  }
  return memory;
}

std::vector<std::optional<TensorSlice>> SlicesOf(const std::vector<actors::PlanOperand>& operands) {
  std::vector<std::optional<TensorSlice>> slices;
  for (const actors::PlanOperand& operand : operands) {
    slices.emplace_back(operand.slice);
    if (operand.place == actors::PlanOperand::Place::kNone) slices.back().reset();
  }
  return slices;
}

std::optional<ProductClass> ClassOf(const kernels::KernelSpec& spec) {
  const auto pointers = [](const std::vector<std::optional<TensorSlice>>& slices) {
    std::vector<const TensorSlice*> to;
    for (const auto& slice : slices) to.push_back(slice.has_value() ? &*slice : nullptr);
    return to;
  };
  return ops::ProductClassOf(spec.op, spec.attrs, pointers(spec.inputs), pointers(spec.outputs));
}

// The calls of one class of products.
struct Product {
  kernels::KernelSpec spec;  // of the first call
  int64_t calls = 0;         // in the programs of the plans
};

// Adds the calls of products that the plan has.
void FindProducts(const actors::Plan& plan, std::map<ProductClass, Product>* found) {
  for (const actors::PlanProgram& program : plan.programs) {
    for (const actors::PlanCall& call : program.calls) {
      kernels::KernelSpec spec;
      spec.op = call.op;
      spec.attrs = call.attrs;
      spec.inputs = SlicesOf(call.inputs);
      spec.outputs = SlicesOf(call.outputs);
      const std::optional<ProductClass> product = ClassOf(spec);
      if (!product.has_value() || product->m == 0 || product->n == 0 || product->k == 0) continue;
      Product& of = found->try_emplace(*product, Product{std::move(spec), 0}).first->second;
      ++of.calls;
    }
  }
}

// The kernels of one call in all ways that the processor has, on operands of their own.
class Contest {
 public:
  explicit Contest(const kernels::KernelSpec& spec) : team_(1) {
    int64_t workspace = 0;
    for (const ProductWay way : kProductWays) {
      // Products of f32 and f16 are in f32 anyway, so these ways would be measured twice.
      if (spec.inputs[0]->dtype != DType::kBF16 && way >= ProductWay::kPanelsInF32) continue;
      kernels::KernelSpec of_way = spec;
      of_way.num_threads = 1;
      of_way.attrs.Erase(kProductWayAttr);
      if (way != ProductWay::kAutomatic) of_way.attrs.Set(kProductWayAttr, Name(way));
      absl::StatusOr<std::unique_ptr<kernels::Kernel>> kernel =
          kernels::KernelRegistry::Create("cpu", of_way);
      if (!kernel.ok()) continue;
      workspace = std::max(workspace, (*kernel)->workspace_bytes());
      entries_.push_back({way, *std::move(kernel), {}});
    }
    for (const auto& input : spec.inputs) inputs_.push_back(Add(input));
    for (const auto& output : spec.outputs) outputs_.push_back(Add(output));
    owned_.push_back(Allocate(workspace));
    args_.inputs = inputs_;
    args_.outputs = outputs_;
    launch_ = {&team_, owned_.back().get(), nullptr};
  }

  absl::Status Run() {
    double longest = 0, all = 0;
    for (Entry& entry : entries_) {
      WEIR_ASSIGN_OR_RETURN(const double ns, TimeOf(&entry, 1));  // pages and caches
      longest = std::max(longest, ns);
      all += ns;
    }
    const int repeats = longest >= kRoundNs ? 1 : static_cast<int>(kRoundNs / longest) + 1;
    const int rounds =
        static_cast<int>(std::clamp<double>(kClassNs / (all * repeats), kRoundsMin, kRoundsMax));
    for (int round = 0; round < rounds; ++round) {
      for (Entry& entry : entries_) {
        WEIR_ASSIGN_OR_RETURN(const double ns, TimeOf(&entry, repeats));
        entry.ns.push_back(ns);
      }
    }
    return absl::OkStatus();
  }

  void Report(proto::MeasuredProducts::Row* row) {
    for (Entry& entry : entries_) {
      std::sort(entry.ns.begin(), entry.ns.end());
      const size_t n = entry.ns.size();
      proto::MeasuredProducts::Time* time = row->add_time();
      time->set_way(Name(entry.way));
      time->set_ns(entry.ns[n / 2]);
      time->set_low(entry.ns[n / 4]);
      time->set_high(entry.ns[n - 1 - n / 4]);
    }
  }

 private:
  struct Entry {
    ProductWay way;
    std::unique_ptr<kernels::Kernel> kernel;
    std::vector<double> ns;  // of one run, by round
  };

  void* Add(const std::optional<TensorSlice>& slice) {
    if (!slice.has_value()) return nullptr;
    owned_.push_back(Numbers(*slice));
    return owned_.back().get();
  }

  absl::StatusOr<double> TimeOf(Entry* entry, int repeats) {
    const double begin = ThreadNs();
    for (int i = 0; i < repeats; ++i) WEIR_RETURN_IF_ERROR(entry->kernel->Run(args_, launch_));
    return std::max(1.0, (ThreadNs() - begin) / repeats);
  }

  device::ThreadTeam team_;
  std::vector<Entry> entries_;
  std::vector<Memory> owned_;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
  kernels::KernelArgs args_;
  kernels::LaunchContext launch_;
};

proto::MeasuredProducts ThisMachine() {
  proto::MeasuredProducts machine;
  char name[256] = "";
  if (::gethostname(name, sizeof(name) - 1) == 0) machine.set_host(name);
  machine.set_processor(kernels::ProcessorModel());
  machine.set_kernels(kernels::ProcessorKernels());
  return machine;
}

bool IsOf(const proto::MeasuredProducts& measured, const proto::MeasuredProducts& machine) {
  return measured.host() == machine.host() && measured.processor() == machine.processor() &&
         measured.kernels() == machine.kernels();
}

// Returns the text with every run of characters that a file's name should not have as one dash.
std::string ForFileName(const std::string& text) {
  std::string name;
  for (const char c : text) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_') {
      name += c;
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  while (!name.empty() && name.back() == '-') name.pop_back();
  return name;
}

double FlopsOf(const proto::ProductClass& of) {
  return 2.0 * static_cast<double>(of.m()) * static_cast<double>(of.n()) *
         static_cast<double>(of.k());
}

bool IsForCpu(const proto::Job& job) {
  const std::string& device = job.runtime().device();
  return device.empty() || device == "cpu" || device == "walled";
}

}  // namespace

absl::StatusOr<proto::MeasuredProducts> MeasureProducts(
    const std::vector<proto::Job>& jobs, const std::function<void(const std::string&)>& say) {
  std::map<ProductClass, Product> products;
  for (const proto::Job& job : jobs) {
    if (!IsForCpu(job)) {
      return Rejected({"W0554", "runtime.device", "cpu, whose matrix products have several ways",
                       absl::StrCat("\"", job.runtime().device(), "\""), "--device cpu"});
    }
    WEIR_ASSIGN_OR_RETURN(const std::vector<actors::Plan> plans, PlansOf(job));
    for (const actors::Plan& plan : plans) FindProducts(plan, &products);
  }
  proto::MeasuredProducts measured = ThisMachine();
  for (const auto& [product, found] : products) {
    if (say) say(absl::StrCat("the product ", ToText(product)));
    Contest contest(found.spec);
    WEIR_RETURN_IF_ERROR(contest.Run());
    proto::MeasuredProducts::Row* const row = measured.add_row();
    contest.Report(row);
    *row->mutable_choice() = ChoiceOf(ToProto(product), row->time());
  }
  return measured;
}

proto::ProductWayChoice ChoiceOf(
    const proto::ProductClass& of,
    const google::protobuf::RepeatedPtrField<proto::MeasuredProducts::Time>& times) {
  const proto::MeasuredProducts::Time& automatic = times[0];
  const proto::MeasuredProducts::Time* best = &automatic;
  for (const proto::MeasuredProducts::Time& time : times) {
    if (time.ns() < best->ns()) best = &time;
  }
  if (best->ns() * kClearGain > automatic.ns() || best->high() > automatic.low()) best = &automatic;
  proto::ProductWayChoice choice;
  *choice.mutable_of() = of;
  choice.set_way(best->way());
  choice.set_gain(automatic.ns() / best->ns());
  return choice;
}

std::string KeptProductsPath() {
  const char* named = ::getenv("WEIR_PRODUCTS");
  if (named != nullptr && *named != '\0') return named;
  const std::filesystem::path costs = KeptClusterPath();
  if (costs.empty()) return "";
  const proto::MeasuredProducts machine = ThisMachine();
  return (costs.parent_path() / absl::StrCat("products-", ForFileName(machine.host()), "-",
                                             ForFileName(machine.processor()), ".textproto"))
      .string();
}

absl::StatusOr<proto::MeasuredProducts> ReadProducts(const std::string& path) {
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<store::MappedFile> file,
                        store::MappedFile::Open(path, "measured products"));
  const char expected[] = "measured products in protobuf text form (proto/product.proto)";
  if (file->size() > kFileBytesMax) {
    return Rejected({"W0845", path, absl::StrCat("at most ", kFileBytesMax, " bytes"),
                     absl::StrCat(file->size()), absl::StrCat("remove the file; ", kMeasureAgain)});
  }
  const std::string text(file->text());
  proto::MeasuredProducts measured;
  WEIR_RETURN_IF_ERROR(job::ParseMessageText(
      text, {path, "W0845", expected, absl::StrCat("remove the file; ", kMeasureAgain)},
      &measured));
  for (int i = 0; i < measured.row_size(); ++i) {
    WEIR_RETURN_IF_ERROR(
        ProductChoiceOf(measured.row(i).choice(), absl::StrCat(path, ", row[", i, "].choice"))
            .status());
  }
  return measured;
}

absl::Status KeepProducts(const proto::MeasuredProducts& measured, const std::string& path) {
  proto::MeasuredProducts all = measured;
  std::set<ProductClass> known;
  for (const auto& row : measured.row()) {
    WEIR_ASSIGN_OR_RETURN(const ProductChoice choice, ProductChoiceOf(row.choice(), "row"));
    known.insert(choice.of);
  }
  const absl::StatusOr<proto::MeasuredProducts> before = ReadProducts(path);
  if (before.ok() && IsOf(*before, measured)) {
    for (const auto& row : before->row()) {
      WEIR_ASSIGN_OR_RETURN(const ProductChoice choice, ProductChoiceOf(row.choice(), "row"));
      if (known.count(choice.of) == 0) *all.add_row() = row;
    }
  }
  std::string text;
  google::protobuf::TextFormat::PrintToString(all, &text);
  // A job that begins meanwhile reads the file as it was before or as it is afterwards.
  const absl::Status written = store::WriteWholeFile(path, [&text](std::ostream& file) {
    file << "# proto-file: proto/product.proto\n# proto-message: weir.proto.MeasuredProducts\n"
         << "# Written by `weir calibrate --keep`.\n"
         << text;
    return absl::OkStatus();
  });
  const std::optional<Problem> problem = ProblemOf(written);
  if (!problem.has_value()) return written;
  return Missing({"W0845", path, "a file that can be written", problem->found,
                  "check the folder, or set $WEIR_PRODUCTS to another path"});
}

void UseProducts(const proto::MeasuredProducts& measured, proto::Job* job) {
  if (!IsForCpu(*job) || job->runtime().product_size() > 0) return;
  const bool any = std::any_of(measured.row().begin(), measured.row().end(), [](const auto& row) {
    return row.choice().way() != Name(ProductWay::kAutomatic);
  });
  if (!any) return;
  for (const auto& row : measured.row()) *job->mutable_runtime()->add_product() = row.choice();
}

absl::StatusOr<std::string> SettleProducts(proto::Job* job) {
  if (!IsForCpu(*job) || job->runtime().product_size() > 0) return "";
  const std::string path = KeptProductsPath();
  if (path.empty() || ::access(path.c_str(), F_OK) != 0) return "";
  WEIR_ASSIGN_OR_RETURN(const proto::MeasuredProducts measured, ReadProducts(path));
  const proto::MeasuredProducts here = ThisMachine();
  if (!IsOf(measured, here)) {
    const std::string there =
        absl::StrCat(measured.host(), ", ", measured.processor(), ", ", measured.kernels());
    return absl::StrCat("products: the ways in ", path, " do not count: they are of ",
                        there == ", , " ? "no machine that the file names" : there,
                        ", and this machine is ", here.host(), ", ", here.processor(), ", ",
                        here.kernels(), "; ", kMeasureAgain);
  }
  UseProducts(measured, job);
  const auto chosen = std::count_if(
      measured.row().begin(), measured.row().end(),
      [](const auto& row) { return row.choice().way() != Name(ProductWay::kAutomatic); });
  return absl::StrCat("products: ", chosen, " of ", measured.row_size(),
                      " measured classes have a faster way than the automatic one (", path, ")");
}

absl::StatusOr<std::string> ProductsSection(const compiler::LogicalPlan& plan) {
  std::map<ProductClass, Product> products;
  for (int64_t place = 0; place < plan.places.size(); ++place) {
    WEIR_ASSIGN_OR_RETURN(const proto::RankPlan lowered,
                          compiler::LowerForRank(plan, plan.places.ranks(place).front()));
    WEIR_ASSIGN_OR_RETURN(const actors::Plan rank, actors::PlanFromProto(lowered));
    FindProducts(rank, &products);
  }
  std::string text = "\nproducts: how a CPU computes them, and why\n";
  for (const auto& [product, found] : products) {
    const ProductChoice* choice = plan.products.Nearest(product);
    const std::string why =
        choice == nullptr          ? "the choice of shape and processor: no near class was measured"
        : !(choice->of == product) ? absl::StrCat("as ", ToText(choice->of))
        : choice->way == ProductWay::kAutomatic ? "no way was clearly faster"
        : choice->gain > 0 ? absl::StrFormat("%.2f times as fast as automatic", choice->gain)
                           : "the job says so";
    absl::StrAppend(&text, "  ", ToText(product), " (", Plural(found.calls, "call"), ")\n    ",
                    Name(choice == nullptr ? ProductWay::kAutomatic : choice->way), ": ", why,
                    "\n");
  }
  return products.empty() ? absl::StrCat(text, "  none\n") : text;
}

std::string ProductsText(const proto::MeasuredProducts& measured) {
  std::string text =
      absl::StrCat("matrix products on ", measured.host(), ", ", measured.processor(), "\n",
                   measured.kernels(), "\nGFLOP/s of one thread: median, and the middle half\n");
  for (const auto& row : measured.row()) {
    const absl::StatusOr<ProductChoice> choice = ProductChoiceOf(row.choice(), "row");
    if (!choice.ok()) continue;
    absl::StrAppendFormat(&text, "%s\n", ToText(choice->of));
    const double flops = FlopsOf(row.choice().of());
    for (const auto& time : row.time()) {
      absl::StrAppendFormat(&text, "  %-10s %7.1f  %.1f to %.1f%s\n", time.way(), flops / time.ns(),
                            flops / time.high(), flops / time.low(),
                            time.way() == row.choice().way() ? "  chosen" : "");
    }
  }
  return text;
}

}  // namespace weir::sim
