#include "tests/fuzz/job_generator.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "tests/fuzz/graph_generator.h"
#include "tools/zoo/gpt.h"
#include "tools/zoo/llama.h"
#include "tools/zoo/mlp.h"

namespace weir::fuzz {
namespace {

// A stage with a mesh of its own has at most this many devices.
constexpr int64_t kDevicesOfStageMax = 8;

class JobGenerator {
 public:
  explicit JobGenerator(uint64_t seed) : random_(seed) {}

  proto::Job Run() {
    proto::Job job;
    // If the zoo refuses its options, the model is drawn again.
    for (absl::StatusOr<proto::Job> model = DrawModel();; model = DrawModel()) {
      if (!model.ok()) continue;
      job = *std::move(model);
      break;
    }
    DrawMesh(&job);
    if (job.rule_size() == 0 || OneIn(3)) DrawRules(&job);
    if (OneIn(3)) DrawLayouts(&job);
    DrawPipeline(&job);
    DrawTraining(job.mutable_training());
    DrawRuntime(&job);
    if (OneIn(2)) job.mutable_mesh()->set_devices_per_host(OneOf({1, 2, 2, 3, 4, 4, 6, 8}));
    if (OneIn(3)) DrawRankOrder(job.mutable_mesh());
    if (OneIn(4)) DrawPlaces(&job);
    if (OneIn(8)) DrawStagesOfRules(&job);
    if (OneIn(2)) DrawOptimizer(job.mutable_training()->mutable_optimizer());
    if (OneIn(4)) DrawGroups(&job);
    if (OneIn(6)) job.mutable_training()->mutable_average();
    if (OneIn(4)) DrawStageMeshes(&job);
    if (OneIn(4)) DrawPrecisionRules(&job);
    return job;
  }

 private:
  void DrawRankOrder(proto::MeshSpec* mesh) {
    std::vector<std::string> names;
    for (const proto::MeshAxisSpec& axis : mesh->axis()) names.push_back(axis.name());
    std::shuffle(names.begin(), names.end(), random_);
    for (const std::string& name : names) mesh->add_rank_order(name);
  }

  int64_t Below(int64_t bound) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(bound));
  }
  bool OneIn(int64_t n) { return Below(n) == 0; }
  template <typename T, size_t n>
  T OneOf(const T (&values)[n]) {
    return values[Below(n)];
  }

  absl::StatusOr<proto::Job> DrawModel() {
    switch (Below(4)) {
      case 0: return zoo::GptJob(DrawTransformer());
      case 1: {
        zoo::TransformerOptions options = DrawTransformer();
        if (OneIn(2)) options.kv_heads = std::max<int64_t>(1, options.heads / 2);
        return zoo::LlamaJob(options);
      }
      case 2: {
        zoo::MlpOptions options;
        options.layers = Below(5);
        options.pixels = 1 + Below(20);
        options.hidden = 1 + Below(12);
        options.ffn = 1 + Below(12);
        options.classes = 2 + Below(10);
        options.training = DrawZooTraining();
        return zoo::MlpJob(options);
      }
      default: {
        proto::Job job;
        job.set_name("generated");
        *job.mutable_graph() = GenerateGraph(&random_);
        job.mutable_data()->mutable_synthetic();
        job.mutable_training()->set_steps(1 + Below(3));
        job.mutable_training()->mutable_schedule()->set_learning_rate(0.01);
        for (const proto::Dim& dim : job.graph().dim()) {
          if (dim.name() != "batch") continue;
          job.mutable_training()->set_micro_batches(OneIn(2) ? 1 : dim.size());
        }
        return job;
      }
    }
  }

  zoo::TransformerOptions DrawTransformer() {
    zoo::TransformerOptions options;
    options.layers = 1 + Below(5);
    options.heads = 1 + Below(6);
    options.hidden = options.heads * 2 * (1 + Below(3));
    options.ffn = OneIn(2) ? 0 : 1 + Below(30);
    options.vocab = 2 + Below(31);
    options.sequence = 1 + Below(9);
    options.dropout = OneIn(4) ? 0.1 : 0;
    options.sequence_parallel =
        OneOf({zoo::SequenceParallel::kNone, zoo::SequenceParallel::kMegatron,
               zoo::SequenceParallel::kUlysses});
    options.training = DrawZooTraining();
    return options;
  }

  zoo::TrainingOptions DrawZooTraining() {
    zoo::TrainingOptions options;
    options.micro_batches = OneOf({1, 1, 2, 3, 4, 8});
    options.batch = options.micro_batches * (1 + Below(5));
    options.steps = 1 + Below(4);
    options.recompute = OneIn(4);
    return options;
  }

  void DrawMesh(proto::Job* job) {
    std::vector<std::string> names = {"dp", "sp", "tp", "pp"};
    std::shuffle(names.begin(), names.end(), random_);
    names.resize(Below(5));
    const int64_t devices_max = OneIn(50) ? kDevicesMax : kDevicesOften;
    int64_t devices = 1;
    job->clear_mesh();
    for (const std::string& name : names) {
      const int64_t size = OneOf({1, 2, 2, 3, 3, 4, 5, 7, 8});
      if (devices * size > devices_max) continue;
      devices *= size;
      proto::MeshAxisSpec* axis = job->mutable_mesh()->add_axis();
      axis->set_name(name);
      axis->set_size(size);
    }
  }

  // Draws more rules, for any dimension and axis of the job, in any order.
  void DrawRules(proto::Job* job) {
    std::vector<proto::Rule> rules(job->rule().begin(), job->rule().end());
    std::erase_if(rules, [&](const proto::Rule&) { return OneIn(3); });
    for (int64_t i = Below(6); i > 0; --i) {
      proto::Rule rule;
      rule.set_dim(job->graph().dim(static_cast<int>(Below(job->graph().dim_size()))).name());
      rule.set_axis(OneOf({"dp", "sp", "tp"}));
      rule.set_scope(OneOf(
          {proto::Rule::ALL, proto::Rule::ALL, proto::Rule::ACTIVATIONS, proto::Rule::PARAMETERS}));
      rules.push_back(rule);
    }
    std::shuffle(rules.begin(), rules.end(), random_);
    job->clear_rule();
    for (const proto::Rule& rule : rules) *job->add_rule() = rule;
  }

  void DrawLayouts(proto::Job* job) {
    std::vector<std::string> axes;
    for (const proto::MeshAxisSpec& axis : job->mesh().axis()) {
      if (axis.name() != "pp") axes.push_back(axis.name());
    }
    std::vector<std::string> tensors;
    for (const proto::Function& function : job->graph().function()) {
      for (const proto::TensorDecl& input : function.input())
        tensors.push_back(absl::StrCat(function.name(), "/", input.name()));
      for (const proto::Parameter& parameter : function.parameter())
        tensors.push_back(absl::StrCat(function.name(), "/", parameter.name()));
      for (const proto::Node& node : function.node())
        tensors.push_back(absl::StrCat(function.name(), "/",
                                       node.output_size() > 0 ? node.output(0) : node.name()));
    }
    std::shuffle(tensors.begin(), tensors.end(), random_);
    for (int64_t i = 1 + Below(2);
         i > 0 && !axes.empty() && i <= static_cast<int64_t>(tensors.size()); --i) {
      proto::LayoutOverride* layout = job->add_layout();
      layout->set_tensor(tensors[i - 1]);
      const std::string kind = OneOf({0, 0, 0, 1, 2}) == 0 ? absl::StrCat("S(", Below(3), ")")
                               : OneIn(2)                  ? "B"
                                                           : "P(sum)";
      layout->set_sbp(
          absl::StrCat("[", axes[Below(static_cast<int64_t>(axes.size()))], ": ", kind, "]"));
    }
  }

  void DrawPipeline(proto::Job* job) {
    proto::Pipeline* pipeline = job->mutable_pipeline();
    pipeline->set_schedule(
        OneOf({proto::Pipeline::ONE_F_ONE_B, proto::Pipeline::ONE_F_ONE_B, proto::Pipeline::GPIPE,
               proto::Pipeline::INTERLEAVED, proto::Pipeline::ZERO_BUBBLE}));
    if (pipeline->schedule() == proto::Pipeline::INTERLEAVED && OneIn(2))
      pipeline->set_virtual_stages(1 + Below(3));
  }

  static int64_t NumStages(const proto::Job& job) {
    for (const proto::MeshAxisSpec& axis : job.mesh().axis()) {
      if (axis.name() == "pp") return axis.size();
    }
    return 1;
  }

  // Places most calls of `main`. The calls pass the stages in a random order, or go anywhere, which
  // may be a circle.
  void DrawPlaces(proto::Job* job) {
    proto::Pipeline* pipeline = job->mutable_pipeline();
    if (pipeline->schedule() == proto::Pipeline::INTERLEAVED) {
      pipeline->clear_schedule();
      pipeline->clear_virtual_stages();
    }
    std::vector<int64_t> order(NumStages(*job));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    const auto stages = static_cast<int64_t>(order.size());
    const bool anywhere = OneIn(4);
    std::vector<std::string> calls;
    for (const proto::Function& function : job->graph().function()) {
      if (function.name() != job->graph().main()) continue;
      for (const proto::Node& node : function.node()) {
        if (node.op() != "call") continue;
        for (int64_t i = 0; i < std::max<int64_t>(1, node.repeat()); ++i)
          calls.push_back(node.repeat() > 1 ? absl::StrCat(node.name(), ".", i) : node.name());
      }
    }
    const auto num_calls = static_cast<int64_t>(calls.size());
    for (int64_t c = 0; c < num_calls; ++c) {
      if (OneIn(8)) continue;
      const int64_t position =
          anywhere ? Below(stages)
                   : std::min(stages - 1, c * stages / num_calls + (OneIn(3) ? 1 : 0));
      proto::Pipeline::Place* place = pipeline->add_place();
      place->set_call(calls[c]);
      place->set_stage(order[position]);
    }
  }

  // Gives some stages meshes of their own, mostly with an order of ranks that they allow.
  void DrawStageMeshes(proto::Job* job) {
    const int64_t stages = NumStages(*job);
    if (stages < 2) return;
    if (!OneIn(8)) job->mutable_mesh()->clear_rank_order();
    for (int64_t stage = 0; stage < stages; ++stage) {
      if (OneIn(3)) continue;
      std::string mesh;
      int64_t devices = 1;
      for (const proto::MeshAxisSpec& axis : job->mesh().axis()) {
        const int64_t size = OneOf({1, 1, 2, 2, 3, 4});
        if (axis.name() == "pp" || devices * size > kDevicesOfStageMax || OneIn(4)) continue;
        devices *= size;
        absl::StrAppend(&mesh, mesh.empty() ? "" : ",", axis.name(), "=", size);
      }
      proto::Pipeline::StageMesh* entry = job->mutable_pipeline()->add_stage_mesh();
      entry->add_stage(stage);
      entry->set_mesh(mesh);
    }
  }

  void DrawStagesOfRules(proto::Job* job) {
    const int64_t stages = NumStages(*job);
    for (proto::Rule& rule : *job->mutable_rule()) {
      for (int64_t s = 0; s < stages && OneIn(2); ++s) rule.add_stage(Below(stages));
    }
  }

  // Late gradients need a scale that stays. The scale is so small that layouts, whose sums differ
  // by rounding, do not differ in what overflows.
  static void DrawLossScale(proto::Training* training) {
    proto::LossScale* scale = training->mutable_loss_scale();
    if (training->gradient_delay() > 0 || training->seed() % 4 == 0) {
      scale->set_fixed(256);
    } else {
      scale->set_initial(128);
      scale->set_growth_interval(1 + training->seed() % 3);
    }
  }

  void DrawTraining(proto::Training* training) {
    training->set_seed(1 + Below(1000));
    training->set_zero_stage(OneOf({0, 0, 1, 2, 3, 3}));
    if (OneIn(6)) training->set_zero_axis(OneOf({"dp", "sp", "tp"}));
    const bool is_f16 = training->seed() % 2 == 0;
    if (OneIn(4)) training->set_precision(is_f16 ? proto::Training::F16 : proto::Training::BF16);
    if (OneIn(2)) {
      training->mutable_optimizer()->mutable_sgd()->set_momentum(OneIn(2) ? 0.9 : 0);
    } else {
      proto::Optimizer::AdamW* adamw = training->mutable_optimizer()->mutable_adamw();
      adamw->set_beta1(0.9);
      adamw->set_beta2(0.95);
      adamw->set_epsilon(1e-8);
    }
    training->mutable_optimizer()->set_clip_norm(OneIn(2) ? 1 : 0);
    if (OneIn(4)) training->set_update_every(1 + Below(4));
    if (training->update_every() > 1 && OneIn(2))
      training->set_update_phase(Below(training->update_every()));
    if (OneIn(5)) training->set_gradient_delay(1 + Below(2));
    if (training->precision() == proto::Training::F16) DrawLossScale(training);
  }

  // Replaces the kind of the optimiser, and keeps the clipping.
  void DrawOptimizer(proto::Optimizer* optimizer) {
    switch (Below(4)) {
      case 0: optimizer->mutable_lion()->set_weight_decay(OneIn(2) ? 0.1 : 0); break;
      case 1: optimizer->mutable_lamb()->set_weight_decay(OneIn(2) ? 0.1 : 0); break;
      case 2: optimizer->mutable_adafactor()->set_weight_decay(OneIn(2) ? 0.1 : 0); break;
      default: {
        proto::Optimizer::Muon* muon = optimizer->mutable_muon();
        muon->set_plain(OneIn(3));
        muon->set_flatten(OneIn(2));
        muon->set_adjust(OneIn(2) ? proto::Optimizer::Muon::RMS : proto::Optimizer::Muon::SHAPE);
        if (OneIn(2)) muon->mutable_adamw()->set_beta2(0.95);
      }
    }
  }

  // Groups of the parameters with the same name in all calls, each frozen, or with a rate, a decay
  // or an optimiser of its own.
  void DrawGroups(proto::Job* job) {
    std::vector<std::string> names;
    for (const proto::Function& function : job->graph().function()) {
      for (const proto::Parameter& parameter : function.parameter())
        names.push_back(parameter.name());
    }
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    std::shuffle(names.begin(), names.end(), random_);
    names.resize(std::min<size_t>(names.size(), 1 + Below(2)));
    for (const std::string& name : names) {
      proto::ParameterGroup* group = job->mutable_training()->add_group();
      group->add_pattern(absl::StrCat("*", name));
      if (OneIn(3)) {
        group->set_frozen(true);
        continue;
      }
      if (OneIn(2)) group->set_learning_rate(0.5);
      if (OneIn(3)) group->set_weight_decay(0.1);
      if (OneIn(2)) DrawOptimizer(group->mutable_optimizer());
    }
  }

  // Rules for operations, or for the calls and functions with a letter in their names.
  void DrawPrecisionRules(proto::Job* job) {
    // A job has f32 and one shorter type.
    const proto::Training::Precision half = job->training().precision() == proto::Training::F16
                                                ? proto::Training::F16
                                                : proto::Training::BF16;
    for (int64_t rules = 1 + Below(3); rules > 0; --rules) {
      proto::PrecisionRule* rule = job->mutable_training()->add_precision_of();
      if (OneIn(2)) rule->add_op(OneOf({"matmul", "*norm*", "add", "softmax*", "embedding", "*"}));
      if (rule->op_size() == 0 || OneIn(3))
        rule->add_pattern(OneOf({"*0*", "*1*", "main", "*a*", "*/*e*", "*.1"}));
      rule->set_precision(OneIn(2) ? half : proto::Training::F32);
    }
  }

  void DrawRuntime(proto::Job* job) {
    proto::Runtime* runtime = job->mutable_runtime();
    runtime->set_registers(
        OneOf({proto::Runtime::SCHEDULE, proto::Runtime::SCHEDULE, proto::Runtime::SOLVED,
               proto::Runtime::SOLVED, proto::Runtime::ONE, proto::Runtime::TWO,
               proto::Runtime::TWICE_STAGES}));
    runtime->set_chunk_bytes_max(OneOf({0, 0, 16, 64, 256, 4096}));
    runtime->set_gather_ahead(OneOf({0, 0, 1, 2, -1}));
    if (OneIn(8)) runtime->set_debug_register_slots(static_cast<int32_t>(1 + Below(4)));
    if (OneIn(8)) {
      proto::Recompute* recompute = runtime->add_recompute();
      recompute->set_function(
          job->graph().function(static_cast<int>(Below(job->graph().function_size()))).name());
      recompute->set_keep_all(OneIn(2));
    }
  }

  std::mt19937_64 random_;
};

}  // namespace

proto::Job GenerateJob(uint64_t seed) { return JobGenerator(seed).Run(); }

}  // namespace weir::fuzz
