#include "ops/kernels/cpu/gemm.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "oneapi/dnnl/dnnl.hpp"
#include "ops/kernels/cpu/dnnl_execution.h"
#include "ops/kernels/shape/pieces.h"
#include "runtime/base/problem.h"

namespace weir::kernels {
namespace {

using dnnl::memory;

// oneDNN has no f16 on a CPU, neither in operands nor in results.
DType ComputedAs(const GemmSpec& spec) {
  const bool has_f16 =
      spec.operands == DType::kF16 || spec.result == DType::kF16 || spec.bias == DType::kF16;
  return has_f16 ? DType::kF32 : spec.operands;
}

memory::data_type DnnlType(DType dtype) {
  return dtype == DType::kBF16 ? memory::data_type::bf16 : memory::data_type::f32;
}

memory::desc Strided(int64_t rows, int64_t cols, DType dtype, Storage storage, int64_t stride) {
  memory::dims strides =
      storage == Storage::kPlain ? memory::dims{stride, 1} : memory::dims{1, stride};
  return memory::desc({rows, cols}, DnnlType(dtype), strides);
}

// A Primitive is a compiled product of one block size, or empty where oneDNN has none.
struct Primitive {
  dnnl::matmul::primitive_desc desc;
  dnnl::matmul primitive;
};

std::optional<Primitive> MakePrimitive(const dnnl::engine& engine, const memory::desc& a,
                                       const memory::desc& b, const memory::desc& bias,
                                       const memory::desc& c) {
  try {
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    dnnl::matmul::desc desc =
        bias.is_zero() ? dnnl::matmul::desc(a, b, c) : dnnl::matmul::desc(a, b, bias, c);
    dnnl::matmul::primitive_desc primitive_desc(desc, attr, engine, /*allow_empty=*/true);
    if (!primitive_desc) return std::nullopt;
    return Primitive{primitive_desc, dnnl::matmul(primitive_desc)};
  } catch (const dnnl::error&) {
    return std::nullopt;
  }
}

// Returns the panel order that oneDNN chose for b, if PackPanel can write that order.
std::optional<PanelLayout> PanelsOf(const memory::desc& weights, DType dtype, int64_t n) {
  const dnnl_memory_desc_t& md = weights.data;
  if (md.format_kind != dnnl_blocked || md.extra.flags != 0) return std::nullopt;
  const dnnl_blocking_desc_t& blocking = md.format_desc.blocking;
  PanelLayout layout;
  int64_t block_rows = 0;
  if (blocking.inner_nblks == 2 && blocking.inner_idxs[0] == 0 && blocking.inner_idxs[1] == 1) {
    block_rows = blocking.inner_blks[0];
  } else if (blocking.inner_nblks == 3 && blocking.inner_idxs[0] == 0 &&
             blocking.inner_idxs[1] == 1 && blocking.inner_idxs[2] == 0) {
    layout.group = blocking.inner_blks[2];
    block_rows = blocking.inner_blks[0] * layout.group;
  } else {
    return std::nullopt;
  }
  layout.columns = blocking.inner_blks[1];
  layout.padded_rows = md.padded_dims[0];
  bool as_expected = layout.group == (dtype == DType::kBF16 ? 2 : 1) && md.offset0 == 0 &&
                     blocking.strides[0] == layout.columns * block_rows &&
                     blocking.strides[1] == layout.panel_elements() &&
                     md.padded_dims[1] == RoundUp(n, layout.columns);
  if (!as_expected) return std::nullopt;
  return layout;
}

// An Execution is one worker's run of one product.
class Execution {
 public:
  Execution(const dnnl::engine& engine, const Primitive& made)
      : has_bias_(!made.desc.bias_desc().is_zero()),
        execution_(engine, made.primitive, ArgumentsOf(made)) {}

  void Run(const void* a, const void* b, const void* bias, void* c, void* scratch) {
    if (has_bias_) {
      execution_.Run({a, b, c, scratch, bias});
    } else {
      execution_.Run({a, b, c, scratch});
    }
  }

 private:
  static DnnlExecution::Arguments ArgumentsOf(const Primitive& made) {
    DnnlExecution::Arguments arguments = {{DNNL_ARG_SRC, made.desc.src_desc()},
                                          {DNNL_ARG_WEIGHTS, made.desc.weights_desc()},
                                          {DNNL_ARG_DST, made.desc.dst_desc()},
                                          {DNNL_ARG_SCRATCHPAD, made.desc.scratchpad_desc()}};
    if (!made.desc.bias_desc().is_zero())
      arguments.emplace_back(DNNL_ARG_BIAS, made.desc.bias_desc());
    return arguments;
  }

  const bool has_bias_;
  DnnlExecution execution_;
};

int64_t ScratchBytes(const Primitive& made) {
  return static_cast<int64_t>(made.desc.scratchpad_desc().get_size());
}

// --- panels ---------------------------------------------------------------------------

int64_t PanelBlockRows(int64_t m) { return m <= 1024 ? 64 : m <= 2048 ? 128 : 256; }

class PanelGemm final : public Gemm {
 public:
  // Returns null if oneDNN has no block kernel for these sizes or types.
  static std::unique_ptr<Gemm> TryCreate(const GemmSpec& spec, DType compute) {
    auto gemm = std::unique_ptr<PanelGemm>(new PanelGemm(spec, compute));
    return gemm->Prepare() ? std::move(gemm) : nullptr;
  }

  int64_t workspace_bytes() const override { return lanes_at_ + lane_bytes_ * spec_.num_threads; }
  std::string debug_text() const override { return absl::StrCat("panels, ", kernel_name_); }

  void Run(device::ThreadTeam* team, const Operands& operands,
           absl::FunctionRef<void(const Block&)> finished) override {
    PackRight(team, operands);
    const void* bias = operands.bias;
    if (widened_bias_) {
      ConvertReal(*spec_.bias, compute_, bias, At(operands.workspace, bias_at_), spec_.n);
      bias = At(operands.workspace, bias_at_);
    }
    team->For(rows_.count(), [&](int64_t piece, int worker) {
      const Block block{rows_.begin(piece), rows_.length(piece), 0, spec_.n};
      char* lane = LaneOf(operands, worker);
      const void* a = RowsOfLeft(operands.a, block, lane);
      char* c = At(operands.c, block.row * spec_.n * SizeOf(spec_.result));
      char* made = staged_ ? lane + staging_at_ : c;
      Execution& execution = block.num_rows == rows_.size ? whole_[worker] : rest_[worker];
      execution.Run(a, operands.workspace, bias, made, lane + scratch_at_);
      if (staged_) ConvertReal(compute_, spec_.result, made, c, block.num_rows * spec_.n);
      finished(block);
    });
  }

 private:
  PanelGemm(const GemmSpec& spec, DType compute)
      : spec_(spec),
        compute_(compute),
        staged_(compute == DType::kF32 && IsHalf(spec.result)),
        widened_bias_(compute == DType::kF32 && spec.bias.has_value() && IsHalf(*spec.bias)),
        rows_{spec.m, std::min(PanelBlockRows(spec.m), spec.m)} {}

  bool is_widened() const { return compute_ != spec_.operands; }

  bool Prepare() {
    dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    OneOpenMpThread one_thread;
    memory::desc any({spec_.k, spec_.n}, DnnlType(compute_), memory::format_tag::any);
    std::optional<Primitive> whole = Make(engine, rows_.size, any);
    if (!whole) return false;
    std::optional<PanelLayout> layout = PanelsOf(whole->desc.weights_desc(), compute_, spec_.n);
    if (!layout) return false;
    layout_ = *layout;
    kernel_name_ = whole->desc.impl_info_str();
    int64_t scratch_bytes = ScratchBytes(*whole);
    for (int i = 0; i < spec_.num_threads; ++i) whole_.emplace_back(engine, *whole);
    if (int64_t num_rows = spec_.m % rows_.size; num_rows != 0) {
      std::optional<Primitive> rest = Make(engine, num_rows, whole->desc.weights_desc());
      if (!rest) return false;
      scratch_bytes = std::max(scratch_bytes, ScratchBytes(*rest));
      for (int i = 0; i < spec_.num_threads; ++i) rest_.emplace_back(engine, *rest);
    }
    panels_ = Pieces::OfRows((spec_.n + layout_.columns - 1) / layout_.columns,
                             layout_.panel_elements(), kLightPiece);
    PlaceWorkspace(scratch_bytes);
    return true;
  }

  std::optional<Primitive> Make(const dnnl::engine& engine, int64_t num_rows,
                                const memory::desc& b) const {
    memory::desc bias;
    if (spec_.bias) {
      bias = memory::desc({1, spec_.n}, DnnlType(widened_bias_ ? compute_ : *spec_.bias),
                          memory::format_tag::ab);
    }
    return MakePrimitive(
        engine, Strided(num_rows, spec_.k, compute_, Storage::kPlain, spec_.k), b, bias,
        Strided(num_rows, spec_.n, staged_ ? compute_ : spec_.result, Storage::kPlain, spec_.n));
  }

  void PlaceWorkspace(int64_t scratch_bytes) {
    const int64_t size = SizeOf(compute_), elements = rows_.size * spec_.k;
    Region region;
    region.Take(panels_.total * layout_.panel_elements() * size);
    bias_at_ = region.Take(widened_bias_ ? spec_.n * size : 0);
    lanes_at_ = region.bytes();
    Region lane;
    lane.Take(spec_.a == Storage::kTransposed || is_widened() ? elements * size : 0);
    // Packing and products take turns, so what is narrow of either lies at one place.
    int64_t narrow = 0;
    if (is_widened() && spec_.a == Storage::kTransposed) narrow = elements;
    if (is_widened()) narrow = std::max(narrow, layout_.panel_elements());
    narrow_at_ = lane.Take(narrow * SizeOf(spec_.operands));
    staging_at_ = lane.Take(staged_ ? rows_.size * spec_.n * size : 0);
    scratch_at_ = lane.Take(scratch_bytes);
    lane_bytes_ = lane.bytes();
  }

  char* LaneOf(const Operands& operands, int worker) const {
    return At(operands.workspace, lanes_at_ + worker * lane_bytes_);
  }

  // Returns the rows of a as the product reads them: in place, or copied to the lane.
  const void* RowsOfLeft(const void* from, const Block& block, char* lane) const {
    const int64_t size = SizeOf(spec_.operands), elements = block.num_rows * spec_.k;
    const void* rows = At(from, block.row * spec_.k * size);
    if (spec_.a == Storage::kTransposed) {
      char* to = is_widened() ? lane + narrow_at_ : lane;
      TransposeTile(size, At(from, block.row * size), spec_.k, block.num_rows, spec_.m, to,
                    spec_.k);
      rows = to;
    }
    if (!is_widened()) return rows;
    ConvertReal(spec_.operands, compute_, rows, lane, elements);
    return lane;
  }

  void PackRight(device::ThreadTeam* team, const Operands& operands) {
    const int64_t panel_bytes = layout_.panel_elements() * SizeOf(compute_);
    team->For(panels_.count(), [&](int64_t piece, int worker) {
      for (int64_t panel = panels_.begin(piece); panel < panels_.end(piece); ++panel) {
        char* to = At(operands.workspace, panel * panel_bytes);
        if (!is_widened()) {
          PackPanel(spec_.operands, spec_.b, operands.b, spec_.k, spec_.n, layout_, panel, to);
          continue;
        }
        char* narrow = LaneOf(operands, worker) + narrow_at_;
        PackPanelUngrouped(spec_.operands, spec_.b, operands.b, spec_.k, spec_.n, layout_, panel,
                           narrow);
        ConvertReal(spec_.operands, compute_, narrow, to, layout_.panel_elements());
      }
    });
  }

  const GemmSpec spec_;
  const DType compute_;
  const bool staged_;        // oneDNN cannot write the result's type: f32 to a staging block first
  const bool widened_bias_;  // oneDNN cannot read the bias's type beside f32 operands
  const Pieces rows_;
  Pieces panels_;
  PanelLayout layout_;
  std::string kernel_name_;
  std::vector<Execution> whole_, rest_;  // per worker
  // The workspace holds the panels of b and the widened bias (if any), then per worker a's rows (if
  // transposed or widened), what is packed or transposed before it is widened, a staging block and
  // scratch.
  int64_t bias_at_ = 0, lanes_at_ = 0, lane_bytes_ = 0;
  int64_t narrow_at_ = 0, staging_at_ = 0, scratch_at_ = 0;  // in a lane
};

// --- plain ----------------------------------------------------------------------------

int64_t PlainBlockColumns(int64_t n) {
  return std::clamp<int64_t>(RoundUp((n + 7) / 8, 64), 128, 1024);
}

class PlainGemm final : public Gemm {
 public:
  static std::unique_ptr<Gemm> TryCreate(const GemmSpec& spec, DType compute) {
    auto gemm = std::unique_ptr<PlainGemm>(new PlainGemm(spec, compute));
    return gemm->Prepare() ? std::move(gemm) : nullptr;
  }

  int64_t workspace_bytes() const override { return lanes_at_ + lane_bytes_ * spec_.num_threads; }
  std::string debug_text() const override { return absl::StrCat("plain, ", kernel_name_); }

  void Run(device::ThreadTeam* team, const Operands& operands,
           absl::FunctionRef<void(const Block&)> finished) override {
    const void* a = operands.a;
    const void* b = operands.b;
    if (compute_ != spec_.operands) {
      Widen(team, a, At(operands.workspace, a_at_), spec_.m * spec_.k);
      Widen(team, b, At(operands.workspace, b_at_), spec_.n * spec_.k);
      a = At(operands.workspace, a_at_);
      b = At(operands.workspace, b_at_);
    }
    const void* bias = operands.bias;
    if (widened_bias_) {
      ConvertReal(*spec_.bias, compute_, bias, At(operands.workspace, bias_at_), spec_.n);
      bias = At(operands.workspace, bias_at_);
    }
    const int64_t num_columns = columns_.count();
    team->For(rows_.count() * num_columns, [&](int64_t piece, int worker) {
      int64_t i = piece / num_columns, j = piece % num_columns;
      Block block{rows_.begin(i), rows_.length(i), columns_.begin(j), columns_.length(j)};
      RunBlock(block, Operands{a, b, bias, operands.c, operands.workspace}, worker);
      finished(block);
    });
  }

 private:
  PlainGemm(const GemmSpec& spec, DType compute)
      : spec_(spec),
        compute_(compute),
        staged_(compute == DType::kF32 && IsHalf(spec.result)),
        widened_bias_(compute == DType::kF32 && spec.bias.has_value() && IsHalf(*spec.bias)),
        rows_{spec.m, std::min<int64_t>(512, spec.m)},
        columns_{spec.n, std::min(PlainBlockColumns(spec.n), spec.n)} {}

  bool Prepare() {
    dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    OneOpenMpThread one_thread;
    int64_t scratch_bytes = 0;
    for (int64_t num_rows : {rows_.size, spec_.m % rows_.size}) {
      for (int64_t num_columns : {columns_.size, spec_.n % columns_.size}) {
        executions_.emplace_back();
        if (num_rows == 0 || num_columns == 0) continue;
        std::optional<Primitive> made = Make(engine, num_rows, num_columns);
        if (!made) return false;
        if (kernel_name_.empty()) kernel_name_ = made->desc.impl_info_str();
        scratch_bytes = std::max(scratch_bytes, ScratchBytes(*made));
        for (int i = 0; i < spec_.num_threads; ++i) executions_.back().emplace_back(engine, *made);
      }
    }
    Region region;
    if (compute_ != spec_.operands) {
      a_at_ = region.Take(spec_.m * spec_.k * SizeOf(compute_));
      b_at_ = region.Take(spec_.n * spec_.k * SizeOf(compute_));
    }
    bias_at_ = region.Take(widened_bias_ ? spec_.n * SizeOf(compute_) : 0);
    lanes_at_ = region.bytes();
    Region lane;
    lane.Take(staged_ ? rows_.size * columns_.size * SizeOf(compute_) : 0);
    scratch_at_ = lane.Take(scratch_bytes);
    lane_bytes_ = lane.bytes();
    return true;
  }

  std::optional<Primitive> Make(const dnnl::engine& engine, int64_t num_rows,
                                int64_t num_columns) const {
    memory::desc bias;
    if (spec_.bias) {
      bias = memory::desc({1, num_columns}, DnnlType(widened_bias_ ? compute_ : *spec_.bias),
                          memory::format_tag::ab);
    }
    memory::desc a = Strided(num_rows, spec_.k, compute_, spec_.a,
                             spec_.a == Storage::kPlain ? spec_.k : spec_.m);
    memory::desc b = Strided(spec_.k, num_columns, compute_, spec_.b,
                             spec_.b == Storage::kPlain ? spec_.n : spec_.k);
    memory::desc c = staged_
                         ? Strided(num_rows, num_columns, compute_, Storage::kPlain, num_columns)
                         : Strided(num_rows, num_columns, spec_.result, Storage::kPlain, spec_.n);
    return MakePrimitive(engine, a, b, bias, c);
  }

  void RunBlock(const Block& block, const Operands& operands, int worker) {
    const int64_t size = SizeOf(compute_), result_size = SizeOf(spec_.result);
    const int64_t a_at = block.row * (spec_.a == Storage::kPlain ? spec_.k : 1) * size;
    const int64_t b_at = block.column * (spec_.b == Storage::kPlain ? 1 : spec_.k) * size;
    const int64_t bias_at =
        spec_.bias ? block.column * SizeOf(widened_bias_ ? compute_ : *spec_.bias) : 0;
    char* lane = At(operands.workspace, lanes_at_ + worker * lane_bytes_);
    char* c = At(operands.c, (block.row * spec_.n + block.column) * result_size);
    int which =
        (block.num_rows == rows_.size ? 0 : 2) + (block.num_columns == columns_.size ? 0 : 1);
    executions_[which][worker].Run(At(operands.a, a_at), At(operands.b, b_at),
                                   At(operands.bias, bias_at), staged_ ? lane : c,
                                   lane + scratch_at_);
    if (!staged_) return;
    for (int64_t row = 0; row < block.num_rows; ++row) {
      ConvertReal(compute_, spec_.result, lane + row * block.num_columns * size,
                  c + row * spec_.n * result_size, block.num_columns);
    }
  }

  void Widen(device::ThreadTeam* team, const void* from, char* to, int64_t n) const {
    Pieces pieces{n, kLightPiece};
    team->For(pieces.count(), [&](int64_t piece) {
      int64_t begin = pieces.begin(piece);
      ConvertReal(spec_.operands, compute_, At(from, begin * SizeOf(spec_.operands)),
                  to + begin * SizeOf(compute_), pieces.length(piece));
    });
  }

  const GemmSpec spec_;
  const DType compute_;
  const bool staged_;        // oneDNN cannot write the result's type: f32 to a staging block first
  const bool widened_bias_;  // oneDNN cannot read the bias's type beside f32 operands
  const Pieces rows_, columns_;
  std::string kernel_name_;
  // The executions of (whole rows, rest) x (whole columns, rest), then per worker.
  std::vector<std::vector<Execution>> executions_;
  // The workspace holds widened a, b and bias (if any), then per worker a staging block and
  // scratch.
  int64_t a_at_ = 0, b_at_ = 0, bias_at_ = 0, lanes_at_ = 0, lane_bytes_ = 0, scratch_at_ = 0;
};

// --- no products ----------------------------------------------------------------------

// Handles k = 0 or an empty c: every element is the bias, or zero.
class EmptyGemm final : public Gemm {
 public:
  explicit EmptyGemm(const GemmSpec& spec)
      : spec_(spec), rows_(Pieces::OfRows(spec.m, spec.n, kLightPiece)) {}
  int64_t workspace_bytes() const override { return 0; }
  std::string debug_text() const override { return "empty"; }

  void Run(device::ThreadTeam* team, const Operands& operands,
           absl::FunctionRef<void(const Block&)> finished) override {
    if (spec_.n == 0) return;
    const int64_t row_bytes = spec_.n * SizeOf(spec_.result);
    team->For(rows_.count(), [&](int64_t piece) {
      for (int64_t row = rows_.begin(piece); row < rows_.end(piece); ++row) {
        char* c = At(operands.c, row * row_bytes);
        if (spec_.bias) {
          ConvertReal(*spec_.bias, spec_.result, operands.bias, c, spec_.n);
        } else {
          std::memset(c, 0, row_bytes);
        }
      }
      finished(Block{rows_.begin(piece), rows_.length(piece), 0, spec_.n});
    });
  }

 private:
  const GemmSpec spec_;
  const Pieces rows_;
};

// Packing a b larger than this costs more memory traffic than it saves.
constexpr int64_t kPackedBytesMax = 8 << 20;
constexpr int64_t kPanelRowsMin = 32;

std::string SizesOf(const GemmSpec& spec) {
  return ToText(ProductClass{spec.operands, spec.result, spec.m, spec.n, spec.k,
                             spec.a == Storage::kTransposed, spec.b == Storage::kTransposed});
}

absl::StatusOr<std::unique_ptr<Gemm>> CreateNamed(const GemmSpec& spec) {
  const bool in_f32 = spec.way == ProductWay::kPanelsInF32 || spec.way == ProductWay::kPlainInF32;
  const bool panels = spec.way == ProductWay::kPanels || spec.way == ProductWay::kPanelsInF32;
  const DType compute = in_f32 ? DType::kF32 : ComputedAs(spec);
  std::unique_ptr<Gemm> gemm =
      panels ? PanelGemm::TryCreate(spec, compute) : PlainGemm::TryCreate(spec, compute);
  if (gemm != nullptr) return gemm;
  return ErrorOf(
      absl::StatusCode::kUnavailable,
      {"W0842", absl::StrCat("the product ", SizesOf(spec)),
       absl::StrCat("a processor with kernels for the way \"", Name(spec.way), "\""),
       "oneDNN without one here",
       "hosts of one kind, or --cluster defaults, with which measured ways do not count; or "
       "remove the way from runtime.product of the job"});
}

}  // namespace

absl::StatusOr<std::unique_ptr<Gemm>> Gemm::Create(const GemmSpec& spec) {
  if (spec.m == 0 || spec.n == 0 || spec.k == 0) return std::make_unique<EmptyGemm>(spec);
  if (spec.way != ProductWay::kAutomatic) return CreateNamed(spec);
  const DType compute = ComputedAs(spec);
  if (spec.m >= kPanelRowsMin && spec.k * spec.n * SizeOf(spec.operands) <= kPackedBytesMax &&
      !(spec.operands == DType::kF32 && IsHalf(spec.result))) {
    if (std::unique_ptr<Gemm> gemm = PanelGemm::TryCreate(spec, compute)) return gemm;
  }
  if (std::unique_ptr<Gemm> gemm = PlainGemm::TryCreate(spec, compute)) return gemm;
  if (std::unique_ptr<Gemm> gemm = PlainGemm::TryCreate(spec, DType::kF32)) return gemm;
  return absl::InternalError(absl::StrCat("oneDNN has no product of ", SizesOf(spec)));
}

}  // namespace weir::kernels
