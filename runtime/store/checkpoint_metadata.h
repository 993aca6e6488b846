// The facts of a checkpoint as metadata of a file of safetensors, where a checkpoint has no index:
// in one file, or in the files of an export. The reader gives the facts of a checkpoint folder the
// same keys, so whoever resumes a run does not ask in which form the checkpoint is.
//
//   step                       steps done. A file without this key is no checkpoint
//   trained_steps              in place of it in weights alone
//   optimizer_step, schedule, job, job_id, plan_id
//   samples, seed, samples_per_epoch, data
//                              the data cursor. A cursor has the first two; the others are in
//                              exports, the third one only if the data has an end
//   key:NAME                   the key of random numbers of that name
//   seal, seal:NAME            the seals of the cursor and of the keys, in 16 hexadecimal digits
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "runtime/store/checkpoint_index.h"

namespace weir::store {

using Metadata = std::map<std::string, std::string>;

inline constexpr char kStepKey[] = "step";
inline constexpr char kJobIdKey[] = "job_id";
inline constexpr char kTrainedStepsKey[] = "trained_steps";
inline constexpr char kOptimizerStepKey[] = "optimizer_step";

// Returns the metadata of a checkpoint, with all that a run needs to go on. The seals are those of
// `facts`, so that facts that were changed have seals that do not fit in every form.
Metadata CheckpointMetadataOf(const CheckpointFacts& facts);
// Returns the metadata of weights of the job `job` after `step` steps.
Metadata WeightsMetadataOf(const std::string& job, int64_t step);

// Returns whether the metadata is that of a checkpoint: its step is a number from 0 on.
bool IsOfCheckpoint(const Metadata& metadata);
// Returns the facts that the metadata tells. Numbers that cannot be read are absent, but for
// optimizer_step, which is then -1. Seals that cannot be read are 0. A file of before seals were
// written has no seal of any kind: the facts get those that fit, and the checksum of the header
// binds them. A file with some seals and without others has seals of 0 in their place. In a file
// without any, the seed of the cursor stands for the key "training" if there is no key.
CheckpointFacts FactsOf(const Metadata& metadata);
// A key of the metadata of a checkpoint belongs to one of these parts. kCursor: the data cursor,
// its seal, and the counter of updates, which the seal binds. kRandomKey: a random key or its seal.
enum class MetadataPart : uint8_t { kCursor, kRandomKey, kOther };
MetadataPart PartOf(const std::string& key);
// Returns the id of the run that wrote the checkpoint; empty: the metadata does not name it.
std::string RunOf(const Metadata& metadata);
// Returns whether two ids are those of two runs. An empty id fits any other, because checkpoints of
// earlier versions do not name their run.
bool AreOfTwoRuns(const std::string& a, const std::string& b);
// Returns the steps behind a checkpoint or behind weights; nullopt: the metadata does not tell.
std::optional<int64_t> StepsBehind(const Metadata& metadata);

}  // namespace weir::store
