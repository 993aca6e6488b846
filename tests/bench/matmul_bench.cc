// Shows where the time of a GPT step goes, and compares its matrix products with bare oneDNN on the
// same shapes, on one thread.
//   tools/bench matmul
#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "oneapi/dnnl/dnnl.hpp"
#include "tests/bench/bench_gpt.h"
#include "tests/bench/bench_row.h"

namespace weir::bench {
namespace {

using dnnl::memory;

// A product as oneDNN sees it: c[m, n] = a[m, k] b[k, n]. Either operand may be stored transposed.
struct Product {
  int64_t m, k, n;
  bool a_transposed, b_transposed;
  DType in, out;
  auto Key() const { return std::tuple(m, k, n, a_transposed, b_transposed, in, out); }
  bool operator<(const Product& other) const { return Key() < other.Key(); }
  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(k) * static_cast<double>(n);
  }
};

int64_t Rows(const TensorSlice& x) { return x.num_elements() / x.shape.back(); }

bool IsProduct(const actors::PlanCall& call) {
  return call.op == "matmul" || call.op == "matmul_grad_w";
}

Product ProductOf(const actors::PlanCall& call) {
  const bool transposed = call.attrs.Bool("transpose_w");
  const TensorSlice &x = call.inputs[0].slice, &second = call.inputs[1].slice,
                    &y = call.outputs[0].slice;
  if (call.op == "matmul")
    return {Rows(x), x.shape.back(), y.shape.back(), false, transposed, x.dtype, y.dtype};
  const TensorSlice &left = transposed ? second : x, &right = transposed ? x : second;
  return {left.shape.back(), Rows(x), right.shape.back(), true, false, x.dtype, y.dtype};
}

std::string Text(const Product& p) {
  return absl::StrCat(p.m, "x", p.k, "x", p.n, p.a_transposed ? " a^T" : "",
                      p.b_transposed ? " b^T" : "", " ", p.in == DType::kF32 ? "f32" : "bf16",
                      p.out == p.in ? "" : " to f32");
}

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};

// A BareProduct is one oneDNN primitive on operands that no other code uses.
class BareProduct {
 public:
  explicit BareProduct(const Product& p) : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    auto type = [](DType dtype) {
      return dtype == DType::kF32 ? memory::data_type::f32 : memory::data_type::bf16;
    };
    auto strides = [](int64_t rows, int64_t columns, bool transposed) {
      return transposed ? memory::dims{1, rows} : memory::dims{columns, 1};
    };
    const memory::desc a({p.m, p.k}, type(p.in), strides(p.m, p.k, p.a_transposed));
    const memory::desc b({p.k, p.n}, type(p.in), strides(p.k, p.n, p.b_transposed));
    const memory::desc c({p.m, p.n}, type(p.out), strides(p.m, p.n, false));
    product_ = dnnl::matmul(dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), engine_));
    args_ = {{DNNL_ARG_SRC, Ones(a, p.in)},
             {DNNL_ARG_WEIGHTS, Ones(b, p.in)},
             {DNNL_ARG_DST, Ones(c, p.out)}};
  }
  double Ns() {
    const double begin = ThreadCpuNs();
    product_.execute(stream_, args_);
    stream_.wait();
    return ThreadCpuNs() - begin;
  }

 private:
  // Fills with values that are not denormal.
  memory Ones(const memory::desc& desc, DType dtype) {
    owned_.emplace_back(std::aligned_alloc(64, (desc.get_size() + 63) / 64 * 64));
    const size_t n = desc.get_size() / SizeOf(dtype);
    for (size_t i = 0; i < n; ++i) {
      if (dtype == DType::kF32) {
        static_cast<float*>(owned_.back().get())[i] = 1;
      } else {
        static_cast<BFloat16*>(owned_.back().get())[i] = ToBFloat16(1);
      }
    }
    return memory(desc, engine_, owned_.back().get());
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::matmul product_;
  std::vector<std::unique_ptr<void, FreeMemory>> owned_;
  std::unordered_map<int, memory> args_;
};

struct ShapeTimes {
  int64_t calls = 0;               // a step
  std::vector<double> ours, bare;  // ns per call, by round
};

void Shares(const std::string& net, const std::map<std::string, std::vector<double>>& shares) {
  std::vector<std::pair<double, std::string>> order;
  for (const auto& [op, samples] : shares) order.emplace_back(-Median(samples), op);
  std::sort(order.begin(), order.end());
  const size_t shown = std::min<size_t>(order.size(), 8);
  for (size_t i = 0; i < shown; ++i) {
    PrintRow({absl::StrCat(net, ": share of ", order[i].second),
              "%",
              shares.at(order[i].second),
              "",
              {},
              BenchRow::Better::kLower,
              {},
              ""});
  }
}

// Times the step's kernels in a loop, and after each round times every shape in bare oneDNN.
void Measure(const BenchArgs& args, const std::string& net, zoo::TransformerOptions gpt,
             const std::string& precision) {
  gpt.training.precision = precision;
  const std::string name = absl::StrCat(net, " ", precision);
  CountingFeed feed(gpt.vocab);
  actors::SessionOptions options;
  options.feed = &feed;
  std::unique_ptr<actors::Session> session =
      Must(actors::Session::Create(PlansOf(gpt, ""), options));
  Must(session->RunSteps(2));
  KernelLoop loop(*session, &feed);
  std::map<Product, ShapeTimes> shapes;
  std::map<Product, std::unique_ptr<BareProduct>> bare;
  double flops = 0;  // of all products of a step
  for (KernelLoop::Call& call : loop.calls()) {
    if (!IsProduct(*call.plan)) continue;
    const Product p = ProductOf(*call.plan);
    ++shapes[p].calls;
    flops += p.flops();
    if (!bare.contains(p)) bare[p] = std::make_unique<BareProduct>(p);
  }
  std::vector<double> share, with_attention, step_ms, kernels_ms, speed, bare_speed;
  std::map<std::string, std::vector<double>> shares;
  const int rounds = args.Repeats(9);
  for (int round = -1; round < rounds; ++round) {
    const double begin = ProcessCpuNs();
    Must(session->RunSteps(1));
    const double step = ProcessCpuNs() - begin;
    for (KernelLoop::Call& call : loop.calls()) call.ns = 0;
    loop.RunTimed();
    double products = 0, attention = 0, all = 0, bare_sum = 0;
    std::map<Product, double> by_shape;
    std::map<std::string, double> by_op;
    for (const KernelLoop::Call& call : loop.calls()) {
      all += call.ns;
      by_op[call.plan->op] += call.ns;
      if (absl::StrContains(call.plan->op, "attention")) attention += call.ns;
      if (!IsProduct(*call.plan)) continue;
      products += call.ns;
      by_shape[ProductOf(*call.plan)] += call.ns;
    }
    std::map<Product, double> bare_ns;
    for (auto& [p, primitive] : bare) {
      std::vector<double> samples;
      for (int i = 0; i < 5; ++i) samples.push_back(primitive->Ns());
      bare_ns[p] = Median(samples);
      bare_sum += bare_ns[p] * static_cast<double>(shapes[p].calls);
    }
    if (round < 0) continue;
    for (auto& [p, times] : shapes) {
      times.ours.push_back(p.flops() * static_cast<double>(times.calls) / by_shape[p]);
      times.bare.push_back(p.flops() / bare_ns[p]);
    }
    for (const auto& [op, ns] : by_op) shares[op].push_back(ns / step * 100);
    share.push_back(products / step);
    with_attention.push_back((products + attention) / step);
    step_ms.push_back(step * 1e-6);
    kernels_ms.push_back(all * 1e-6);
    speed.push_back(flops / products);
    bare_speed.push_back(flops / bare_sum);
  }
  PrintRow({absl::StrCat(name, ": matmul kernels as share of the step"),
            "",
            share,
            "budget 0.85",
            {0.85},
            BenchRow::Better::kHigher,
            1.0,
            "CPU time, one thread"});
  PrintRow({absl::StrCat(name, ": with the products inside attention"),
            "",
            with_attention,
            "budget 0.85",
            {0.85},
            BenchRow::Better::kHigher,
            {},
            ""});
  PrintRow({absl::StrCat(name, ": step against its kernels in a loop"),
            "ms",
            step_ms,
            "plain loop",
            kernels_ms,
            BenchRow::Better::kLower,
            {},
            ""});
  PrintRow({absl::StrCat(name, ": speed of all products of a step"), "GFLOP/s", speed,
            "bare oneDNN", bare_speed, BenchRow::Better::kHigher, 0.95,
            "ours in their place in the step, with bias and GELU; bare ones with warm operands"});
  for (const auto& [p, times] : shapes) {
    PrintRow({absl::StrCat(name, ": ", times.calls, " x ", Text(p)), "GFLOP/s", times.ours,
              "bare oneDNN", times.bare, BenchRow::Better::kHigher, 0.95, ""});
  }
  Shares(name, shares);
}

}  // namespace
}  // namespace weir::bench

int main(int argc, char** argv) {
  const weir::bench::BenchArgs args = weir::bench::ParseArgs(argc, argv);
  omp_set_num_threads(1);
  if (args.extent == weir::bench::BenchArgs::Extent::kSmoke) {
    weir::bench::Measure(args, "tiny GPT", weir::bench::TinyGpt(), "f32");
    return 0;
  }
  weir::bench::Measure(args, "small GPT", weir::bench::SmallGpt(), "f32");
  weir::bench::Measure(args, "medium GPT", weir::bench::MediumGpt(), "f32");
  weir::bench::Measure(args, "medium GPT", weir::bench::MediumGpt(), "bf16");
}
