// The common options of all models of the zoo: the cut of the batch, the source of data, the
// training, and the parts of a Job that follow from these.
// Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "proto/job.pb.h"

namespace weir::zoo {

enum class SequenceParallel : uint8_t {
  kNone,
  kMegatron,  // between the split matmuls, activations are split along the sequence over tp
  kUlysses,   // the sequence is split over sp; attention swaps it for heads
};

struct TrainingOptions {
  int64_t batch = 16;
  int64_t micro_batches = 1;
  int64_t update_every = 1;    // steps
  int64_t gradient_delay = 0;  // updates
  std::string data;            // empty: synthetic
  double held_out = 0.1;
  int64_t steps = 500;
  double learning_rate = 1e-3;
  double min_learning_rate = -1;  // negative: a tenth of learning_rate
  int64_t warmup_steps = -1;      // negative: a twentieth of the updates
  double weight_decay = 0.1;
  double clip_norm = 1.0;
  std::string precision = "f32";  // or "bf16", "f16"
  int64_t zero_stage = 0;
  int64_t eval_every = 0;
  uint64_t seed = 1;
  bool recompute = false;         // keeps only the inputs of blocks for the backward pass
  std::string mesh;               // "dp=2,tp=2"
  std::string schedule = "1f1b";  // of the pipeline: 1f1b, gpipe, interleaved or zero-bubble
  int64_t virtual_stages = 0;     // interleaved: parts per stage; 0: as the job's default
};

struct TransformerOptions {
  int64_t layers = 4;
  int64_t hidden = 128;
  int64_t heads = 4;
  int64_t kv_heads = 0;  // llama; 0: like heads
  int64_t ffn = 0;       // 0: four times hidden (gpt), 8/3 rounded up to 32 (llama)
  int64_t vocab = 256;
  int64_t sequence = 128;
  double dropout = 0;  // gpt
  // One table for the embedding and for the logits; otherwise the logits have a matrix of their
  // own.
  bool tied_embeddings = false;
  SequenceParallel sequence_parallel = SequenceParallel::kNone;
  TrainingOptions training;
};

// Sets mesh, optimiser (AdamW), schedule (warm-up, cosine), the rest of `training`, and the values
// that blocks keep. Precondition: the graph is written.
absl::Status WriteTraining(const TrainingOptions& options, proto::Job* job);
// Sets the schedule of the pipeline, if it is not the default.
absl::Status WritePipeline(const TrainingOptions& options, proto::Job* job);
// Sets the data: bytes of a text file, or synthetic tokens.
void WriteTextData(const TrainingOptions& options, proto::Job* job);
void AddRule(proto::Job* job, const std::string& dim, const std::string& axis,
             proto::Rule::Scope scope = proto::Rule::ALL);
// Adds rules, in order of preference, for a transformer whose head dimensions have the names of gpt
// and llama.
void AddTransformerRules(SequenceParallel sequence_parallel, bool grouped_heads, proto::Job* job);
// Rejects a `value` below 1, with the name of the flag.
absl::Status CheckPositive(const std::string& flag, int64_t value);
// Checks the sizes that gpt and llama share.
absl::Status CheckTransformer(const TransformerOptions& options);

}  // namespace weir::zoo
