#include "tools/train/job_data.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/job/batch_dim.h"
#include "compiler/job/import_graph.h"
#include "compiler/job/model_inputs.h"
#include "runtime/base/status.h"
#include "runtime/store/array_dataset.h"
#include "runtime/store/idx_dataset.h"
#include "runtime/store/synthetic_dataset.h"
#include "runtime/store/token_dataset.h"

namespace weir::train {
namespace {

using compiler::ModelInput;

// A dataset under the names of the inputs that take its feeds.
class BoundDataset final : public store::Dataset {
 public:
  BoundDataset(std::unique_ptr<store::Dataset> dataset, std::map<std::string, std::string> feed_of)
      : dataset_(std::move(dataset)), feed_of_(std::move(feed_of)) {}

  std::vector<store::FeedType> feeds() const override {
    std::vector<store::FeedType> feeds;
    for (const auto& [input, from] : feed_of_) {
      for (store::FeedType& feed : dataset_->feeds()) {
        if (feed.name != from) continue;
        feed.name = input;
        feeds.push_back(std::move(feed));
      }
    }
    return feeds;
  }
  absl::Status CheckType(const store::FeedRequest& request) const override {
    return dataset_->CheckType(request);
  }
  absl::Status CheckValues(const store::FeedRequest& request) const override {
    return dataset_->CheckValues(request);
  }
  int64_t num_held_out_batches() const override { return dataset_->num_held_out_batches(); }
  std::string Describe() const override {
    std::vector<std::string> bindings;
    for (const auto& [input, from] : feed_of_) {
      if (input != from) bindings.push_back(absl::StrCat(input, " from ", from));
    }
    return absl::StrCat(
        dataset_->Describe(),
        bindings.empty() ? "" : absl::StrCat(" (", absl::StrJoin(bindings, ", "), ")"));
  }
  absl::Status Fill(const std::string& feed, const store::BatchPosition& position,
                    const TensorSlice& slice, void* out) const override {
    auto known = feed_of_.find(feed);
    return dataset_->Fill(known == feed_of_.end() ? feed : known->second, position, slice, out);
  }

 private:
  std::unique_ptr<store::Dataset> dataset_;
  std::map<std::string, std::string> feed_of_;  // by input
};

std::string InputText(const std::string& input) {
  return absl::StrCat("input ", input, " of main");
}

// Returns the feed of each input that data.feed binds.
absl::StatusOr<std::map<std::string, std::string>> Bindings(const proto::Job& job,
                                                            const std::vector<ModelInput>& inputs) {
  std::vector<std::string> names;
  for (const ModelInput& input : inputs) names.push_back(input.name);
  std::map<std::string, std::string> bindings;
  for (const proto::FeedBinding& binding : job.data().feed()) {
    const std::string where = absl::StrCat("data.feed of input \"", binding.input(), "\"");
    if (std::find(names.begin(), names.end(), binding.input()) == names.end()) {
      const std::string nearest = Nearest(binding.input(), names);
      return Rejected(
          {"W0907", where,
           absl::StrCat("`input` to name an input of main: ", absl::StrJoin(names, ", ")),
           absl::StrCat("\"", binding.input(), "\""),
           nearest.empty() ? "" : absl::StrCat("input: \"", nearest, "\"")});
    }
    if (binding.from().empty()) {
      return Rejected(
          {"W0907", where, "`from` to name a feed of the data", "nothing", "from: \"tokens\""});
    }
    if (!bindings.emplace(binding.input(), binding.from()).second) {
      return Rejected({"W0907", where, "each input once", "two entries", "remove one of them"});
    }
  }
  return bindings;
}

// Returns the requests of the model's inputs to the data.
absl::StatusOr<std::vector<store::FeedRequest>> RequestsOf(const proto::Job& job) {
  WEIR_ASSIGN_OR_RETURN(const std::vector<ModelInput> inputs,
                        compiler::ModelInputsOf(job, compiler::ModeOf(job)));
  WEIR_ASSIGN_OR_RETURN(const auto bindings, Bindings(job, inputs));
  std::vector<store::FeedRequest> requests;
  for (const ModelInput& input : inputs) {
    if (!input.use.needed) continue;
    auto bound = bindings.find(input.name);
    store::FeedRequest request;
    request.input = input.name;
    request.feed = bound == bindings.end() ? input.name : bound->second;
    request.dtype = input.type.dtype;
    request.shape = input.type.shape();
    if (input.use.range.has_value()) {
      request.below = input.use.range->below;
      request.reader = input.use.range->reader;
      request.ignored = input.use.range->ignored;
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

// Returns the samples of a step: the size of training.batch_dim, else of the first dimension that
// all inputs have in common.
absl::StatusOr<int64_t> SamplesOf(const proto::Job& job,
                                  const std::vector<store::FeedRequest>& requests) {
  int64_t samples = 0;
  std::string from = "training.batch_dim";
  if (!job.training().batch_dim().empty()) {
    WEIR_ASSIGN_OR_RETURN(const auto dims, compiler::ImportDimTable(job));
    WEIR_ASSIGN_OR_RETURN(const std::string dim, compiler::BatchDim(job, dims));
    samples = dims.at(dim).size;
  }
  for (const store::FeedRequest& request : requests) {
    const int64_t first = request.shape.empty() ? 0 : request.shape[0];
    if (samples == 0 && first > 0) {
      samples = first;
      from = absl::StrCat("input ", request.input);
    }
    if (first == samples && first > 0) continue;
    return Rejected({"W0908", InputText(request.input),
                     samples == 0 ? "a first dimension that counts samples"
                                  : absl::StrCat("a first dimension of ", samples,
                                                 ", the samples of a step by ", from),
                     absl::StrCat(Name(request.dtype), ToText(request.shape)),
                     "let every input of main begin with the dimension of the samples"});
  }
  return samples;
}

store::TokenDataOptions TextOptions(const proto::Data::Text& text) {
  store::TokenDataOptions options;
  options.paths = {text.path()};
  options.held_out = text.held_out();
  return options;
}

store::TokenDataOptions TokenOptions(const proto::Data::Tokens& tokens) {
  store::TokenDataOptions options;
  options.field = "data.tokens";
  options.noun = "token";
  options.paths.assign(tokens.path().begin(), tokens.path().end());
  options.weights.assign(tokens.weight().begin(), tokens.weight().end());
  switch (tokens.type()) {
    case proto::Data::Tokens::U16: options.type = store::TokenType::kU16; break;
    case proto::Data::Tokens::U32: options.type = store::TokenType::kU32; break;
    default: options.type = store::TokenType::kFound;
  }
  options.order = store::WindowOrder::kEpochs;
  options.held_out = tokens.held_out();
  options.held_out_paths.assign(tokens.held_out_path().begin(), tokens.held_out_path().end());
  return options;
}

// `options` says what the job says; sizes come from the model.
absl::StatusOr<std::unique_ptr<store::Dataset>> OpenTokens(
    const proto::Job& job, const std::vector<store::FeedRequest>& requests,
    store::TokenDataOptions options, store::DataUse use) {
  options.use = use;
  WEIR_ASSIGN_OR_RETURN(options.batch, SamplesOf(job, requests));
  options.sequence = 0;
  options.seed = job.training().seed();
  for (const store::FeedRequest& request : requests) {
    if (options.sequence == 0 && request.shape.size() == 2) options.sequence = request.shape[1];
  }
  if (options.sequence == 0) {
    return Rejected(
        {"W0050", "inputs of main",
         absl::StrCat("an input i32[samples, window] for ", options.field, ", such as \"tokens\""),
         requests.empty() ? "no inputs"
                          : absl::StrCat("input ", requests[0].input, " ", Name(requests[0].dtype),
                                         ToText(requests[0].shape)),
         "input { name: \"tokens\" type: \"i32[batch, sequence]\" }"});
  }
  return store::OpenTokenDataset(options);
}

absl::StatusOr<std::unique_ptr<store::Dataset>> OpenIdx(
    const proto::Job& job, const std::vector<store::FeedRequest>& requests, store::DataUse use) {
  WEIR_ASSIGN_OR_RETURN(const int64_t samples, SamplesOf(job, requests));
  store::IdxDataOptions options;
  options.use = use;
  options.images = job.data().idx().images();
  options.labels = job.data().idx().labels();
  options.test_images = job.data().idx().test_images();
  options.test_labels = job.data().idx().test_labels();
  options.batch = std::max<int64_t>(1, samples);
  options.seed = job.training().seed();
  for (const store::FeedRequest& request : requests) {
    if (request.feed == "labels" && options.labels.empty()) {
      return Rejected({"W0052", "data.idx",
                       absl::StrCat("a file of labels, for input ", request.input), "no `labels`",
                       "data { idx { labels: \"...\" } }"});
    }
  }
  return store::OpenIdxDataset(options);
}

absl::StatusOr<std::unique_ptr<store::Dataset>> OpenArrays(
    const proto::Job& job, const std::vector<store::FeedRequest>& requests, store::DataUse use) {
  const proto::Data::Arrays& arrays = job.data().arrays();
  store::ArrayDataOptions options;
  options.use = use;
  WEIR_ASSIGN_OR_RETURN(options.batch, SamplesOf(job, requests));
  options.batch = std::max<int64_t>(1, options.batch);
  options.seed = job.training().seed();
  options.paths.assign(arrays.path().begin(), arrays.path().end());
  options.held_out_paths.assign(arrays.held_out_path().begin(), arrays.held_out_path().end());
  for (const proto::Data::Arrays::Array& array : arrays.array()) {
    options.arrays.push_back({array.name(),
                              {array.path().begin(), array.path().end()},
                              {array.held_out_path().begin(), array.held_out_path().end()}});
  }
  options.weights.assign(arrays.weight().begin(), arrays.weight().end());
  options.held_out = arrays.held_out();
  for (const proto::Data::Arrays::Scale& scale : arrays.scale()) {
    if (options.scales.emplace(scale.name(), store::ElementScale{scale.by(), scale.plus()}).second)
      continue;
    return Rejected({"W0791", "data.arrays.scale", "each array once",
                     absl::StrCat("two scales of \"", scale.name(), "\""), "remove one of them"});
  }
  for (const store::FeedRequest& request : requests) options.wanted.push_back(request.feed);
  return store::OpenArrayDataset(options);
}

// The data of a model without a loss have no part to train on.
store::DataUse UseOf(const proto::Job& job) {
  return job.graph().without_loss() ? store::DataUse::kInOrder : store::DataUse::kTrain;
}

absl::StatusOr<std::unique_ptr<store::Dataset>> OpenByKind(
    const proto::Job& job, const std::vector<store::FeedRequest>& requests, store::DataUse use) {
  switch (job.data().kind_case()) {
    case proto::Data::kText: return OpenTokens(job, requests, TextOptions(job.data().text()), use);
    case proto::Data::kTokens:
      return OpenTokens(job, requests, TokenOptions(job.data().tokens()), use);
    case proto::Data::kIdx: return OpenIdx(job, requests, use);
    case proto::Data::kArrays: return OpenArrays(job, requests, use);
    case proto::Data::kSynthetic:
      return store::MakeSyntheticDataset({requests, job.training().seed()});
    case proto::Data::KIND_NOT_SET: break;
  }
  return Rejected({"W0050", "data", "one of text, tokens, idx, arrays, synthetic", "nothing",
                   "data { synthetic {} }"});
}

}  // namespace

int64_t MicroBatches(const proto::Job& job) {
  return std::max<int64_t>(1, job.training().micro_batches());
}

int64_t SamplesPerStep(const proto::Job& job) {
  const absl::StatusOr<std::vector<ModelInput>> inputs =
      compiler::ModelInputsOf(job, compiler::ModeOf(job));
  int64_t samples = 1;
  if (!inputs.ok()) return samples;
  for (const ModelInput& input : *inputs) {
    if (input.use.needed && !input.type.dims.empty())
      samples = std::max(samples, input.type.dims[0].size);
  }
  return samples;
}

StepItems ItemsOf(const proto::Job& job) {
  StepItems items;
  const absl::StatusOr<std::vector<ModelInput>> inputs =
      compiler::ModelInputsOf(job, compiler::ModeOf(job));
  if (!inputs.ok()) return items;
  int64_t tokens = 0;
  for (const ModelInput& input : *inputs) {
    if (!input.use.needed || input.type.dims.empty()) continue;
    const std::string& batch_dim = job.training().batch_dim();
    if (batch_dim.empty() || batch_dim == input.type.dims[0].name)
      items.count = std::max(items.count, input.type.dims[0].size);
    const bool looks_up = input.use.range.has_value() && input.use.range->of_rows;
    if (looks_up && input.type.dims.size() > 1)
      tokens = std::max(tokens, input.type.num_elements());
  }
  return tokens > 0 ? StepItems{tokens, "tokens"} : items;
}

namespace {

// Opens the data for requests, under the names of the inputs.
absl::StatusOr<std::unique_ptr<store::Dataset>> OpenFor(
    const proto::Job& job, const std::vector<store::FeedRequest>& requests, store::DataUse use) {
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<store::Dataset> dataset, OpenByKind(job, requests, use));
  std::map<std::string, std::string> feed_of;
  for (const store::FeedRequest& request : requests) {
    WEIR_RETURN_IF_ERROR(store::CheckRequest(*dataset, request));
    feed_of.emplace(request.input, request.feed);
  }
  return std::unique_ptr<store::Dataset>(
      std::make_unique<BoundDataset>(std::move(dataset), std::move(feed_of)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<store::Dataset>> OpenJobData(const proto::Job& job) {
  WEIR_ASSIGN_OR_RETURN(const std::vector<store::FeedRequest> requests, RequestsOf(job));
  return OpenFor(job, requests, UseOf(job));
}

absl::StatusOr<JobSamples> OpenJobSamples(const proto::Job& job, store::DataUse use) {
  WEIR_ASSIGN_OR_RETURN(std::vector<store::FeedRequest> requests, RequestsOf(job));
  JobSamples samples;
  WEIR_ASSIGN_OR_RETURN(samples.batch, SamplesOf(job, requests));
  samples.batch = std::max<int64_t>(1, samples.batch);
  // SamplesOf has found that the first dimension of each input counts samples.
  for (store::FeedRequest& request : requests) request.shape[0] = 1;
  proto::Job one_by_one = job;
  one_by_one.mutable_training()->clear_batch_dim();
  WEIR_ASSIGN_OR_RETURN(samples.dataset, OpenFor(one_by_one, requests, use));
  samples.count = job.data().has_synthetic()
                      ? samples.batch * std::max<int64_t>(1, job.training().eval_batches())
                      : samples.dataset->num_held_out_batches();
  return samples;
}

absl::Status SampleFeed::Fill(const std::string& feed, int64_t step, int64_t,
                              const TensorSlice& slice, void* out) {
  TensorSlice sample = slice;
  sample.shape[0] = sample.global_shape[0] = 1;
  sample.offset[0] = 0;
  char* to = static_cast<char*>(out);
  for (int64_t row = 0; row < slice.shape[0]; ++row, to += sample.bytes()) {
    const int64_t number = step * samples_->batch + slice.offset[0] + row;
    const store::BatchPosition position{store::DataPart::kHeldOut,
                                        std::min(number, samples_->count - 1)};
    WEIR_RETURN_IF_ERROR(samples_->dataset->Fill(feed, position, sample, to));
  }
  return absl::OkStatus();
}

std::string SampleFeed::SampleText(const std::string&, int64_t step, int64_t, int64_t row) const {
  return absl::StrCat("sample ", std::min(step * samples_->batch + row, samples_->count - 1));
}

store::BatchPosition DatasetFeed::PositionAt(int64_t step, int64_t micro_batch) const {
  if (part_ == store::DataPart::kHeldOut && batches_ > 0) step %= batches_;
  return {part_, step, micro_batch, micro_batches_, sample_offset_};
}

absl::Status DatasetFeed::Fill(const std::string& feed, int64_t step, int64_t micro_batch,
                               const TensorSlice& slice, void* out) {
  return dataset_->Fill(feed, PositionAt(step, micro_batch), slice, out);
}

std::string DatasetFeed::SampleText(const std::string&, int64_t step, int64_t micro_batch,
                                    int64_t row) const {
  const store::BatchPosition position = PositionAt(step, micro_batch);
  return absl::StrCat(
      part_ == store::DataPart::kHeldOut ? "held-out batch " : "step ", position.step + 1, ", ",
      micro_batches_ > 1 ? absl::StrCat("micro-batch ", micro_batch, ", ") : "", "sample ", row);
}

}  // namespace weir::train
