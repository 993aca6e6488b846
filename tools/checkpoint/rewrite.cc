#include "tools/checkpoint/rewrite.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "runtime/base/status.h"
#include "runtime/store/checkpoint_folder.h"
#include "runtime/store/shard_file.h"
#include "runtime/store/stored_dtype.h"
#include "tools/checkpoint/tensor_pieces.h"
#include "tools/checkpoint/transition.h"
#include "tools/weights/name_pattern.h"

namespace weir::checkpoint {
namespace {

using weights::Captures;
using weights::NamePattern;

TensorSlice WholeOf(const NewTensor& tensor) {
  return TensorSlice::Whole(tensor.dtype, tensor.shape);
}

absl::StatusOr<store::ShardFileRecord> WriteFile(const store::ShardWriter::Options& options,
                                                 const std::map<std::string, NewTensor>& tensors,
                                                 const std::vector<std::string>& names) {
  std::vector<store::ShardEntry> entries;
  for (const std::string& name : names)
    entries.push_back(store::ShardEntry::Of(name, WholeOf(tensors.at(name))));
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<store::ShardWriter> writer,
                        store::ShardWriter::Create(options, std::move(entries)));
  std::string bytes;
  for (const store::ShardEntry& entry : writer->entries()) {
    const NewTensor& tensor = tensors.at(entry.tensor);
    WEIR_RETURN_IF_ERROR(ForEachPiece(WholeOf(tensor), [&](const TensorSlice& piece) {
      bytes.resize(static_cast<size_t>(piece.bytes()));
      const absl::Status read = tensor.from->Read(tensor.source, piece, bytes.data());
      return read.ok() ? writer->Append(bytes.data(), piece.bytes()) : read;
    }));
  }
  return writer->Finish();
}

absl::Status BadEdit(const std::string& where, const std::string& expected,
                     const std::string& found, const std::string& hint) {
  return Rejected({"W0722", where, expected, found, hint});
}

constexpr char kPatterns[] =
    "a pattern such as layers.{i}.{*}, in which {i} is a number and {*}, once, is any text";

// "PATTERN=VALUE".
struct PatternAndValue {
  NamePattern pattern;
  std::string value;
};

absl::StatusOr<NamePattern> ParsePattern(const std::string& flag, const std::string& text) {
  absl::StatusOr<NamePattern> pattern = NamePattern::Parse(text);
  if (pattern.ok()) return pattern;
  return BadEdit(absl::StrCat(flag, " ", text), absl::StrCat("a name, or ", kPatterns),
                 std::string(pattern.status().message()), "");
}

absl::StatusOr<PatternAndValue> ParsePair(const std::string& flag, const std::string& text,
                                          const std::string& expected) {
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    return BadEdit(absl::StrCat(flag, " ", text), expected, "no '=' between two texts", "");
  WEIR_ASSIGN_OR_RETURN(NamePattern pattern, ParsePattern(flag, text.substr(0, equals)));
  return PatternAndValue{std::move(pattern), text.substr(equals + 1)};
}

// A state of a weight follows the weight.
struct Matched {
  Captures captures;
  std::string rest;  // "/adam_m", or empty
};
std::optional<Matched> Match(const NamePattern& pattern, const std::string& name,
                             const NewTensor& tensor) {
  if (std::optional<Captures> captures = pattern.Match(name); captures.has_value())
    return Matched{*std::move(captures), ""};
  const size_t slash = name.find('/');
  if (tensor.owner == store::StateOwner::kWeight || slash == std::string::npos) return std::nullopt;
  std::optional<Captures> captures = pattern.Match(name.substr(0, slash));
  if (!captures.has_value()) return std::nullopt;
  return Matched{*std::move(captures), name.substr(slash)};
}

// Returns the advice on a text with a bare "*", which is a character like any other; "": none.
std::string AdviceOnStar(const std::string& text) {
  const std::string meant = absl::StrReplaceAll(text, {{"{*}", "{*}"}, {"*", "{*}"}});
  if (meant == text) return "";
  return NamePattern::Parse(meant).ok()
             ? absl::StrCat(meant, ": {*} is any text, and * is no more than a *")
             : kPatterns;
}

absl::Status FitsNothing(const std::string& flag, const NamePattern& pattern,
                         const std::map<std::string, NewTensor>& tensors, const std::string& path) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  const std::string nearest = Nearest(pattern.text(), names);
  const std::string star = AdviceOnStar(pattern.text());
  return BadEdit(absl::StrCat(flag, " ", pattern.text()), "a pattern that fits a tensor of " + path,
                 "none",
                 !star.empty()     ? star
                 : nearest.empty() ? "`weir checkpoint show`, which lists the tensors"
                                   : "the nearest name is " + nearest);
}

absl::Status Drop(const std::string& text, const std::string& path,
                  std::map<std::string, NewTensor>* tensors) {
  WEIR_ASSIGN_OR_RETURN(const NamePattern pattern, ParsePattern("--drop", text));
  const size_t dropped = std::erase_if(*tensors, [&](const auto& entry) {
    return Match(pattern, entry.first, entry.second).has_value();
  });
  return dropped > 0 ? absl::OkStatus() : FitsNothing("--drop", pattern, *tensors, path);
}

absl::Status Rename(const std::string& text, const std::string& path,
                    std::map<std::string, NewTensor>* tensors) {
  WEIR_ASSIGN_OR_RETURN(const PatternAndValue pair,
                        ParsePair("--rename", text, "OLD=NEW, as in layers.{i}.wq=blocks.{i}.wq"));
  WEIR_ASSIGN_OR_RETURN(const NamePattern named, ParsePattern("--rename", pair.value));
  std::map<std::string, NewTensor> renamed;
  bool fits = false;
  for (auto& [name, tensor] : *tensors) {
    const std::optional<Matched> matched = Match(pair.pattern, name, tensor);
    fits = fits || matched.has_value();
    const std::string to =
        matched.has_value() ? named.Fill(matched->captures) + matched->rest : name;
    if (!renamed.emplace(to, tensor).second) {
      return BadEdit(absl::StrCat("--rename ", text, ", tensor ", name), "a name for each tensor",
                     absl::StrCat("a second tensor named ", to), "--drop for the other one");
    }
  }
  if (!fits) return FitsNothing("--rename", pair.pattern, *tensors, path);
  *tensors = std::move(renamed);
  return absl::OkStatus();
}

absl::Status Cast(const std::string& text, const std::string& path,
                  std::map<std::string, NewTensor>* tensors) {
  WEIR_ASSIGN_OR_RETURN(const PatternAndValue pair,
                        ParsePair("--cast", text, "NAME=F32, NAME=BF16 or NAME=F16"));
  const std::optional<DType> to = store::DTypeFromStoredName(pair.value);
  if (!to.has_value() || !IsReal(*to))
    return BadEdit("--cast " + text, "NAME=F32, NAME=BF16 or NAME=F16", pair.value, "");
  bool fits = false;
  for (auto& [name, tensor] : *tensors) {
    if (!Match(pair.pattern, name, tensor).has_value()) continue;
    fits = true;
    if (!IsReal(tensor.dtype)) {
      return BadEdit(absl::StrCat("--cast ", text, ", tensor ", name), "a tensor of reals",
                     store::StoredName(tensor.dtype), "");
    }
    tensor.dtype = *to;
  }
  return fits ? absl::OkStatus() : FitsNothing("--cast", pair.pattern, *tensors, path);
}

}  // namespace

absl::StatusOr<std::map<std::string, NewTensor>> AllOf(const OpenTensors& opened) {
  std::map<std::string, NewTensor> tensors;
  for (const auto& [name, tensor] : opened.tensors) {
    const std::optional<DType> dtype = store::DTypeFromStoredName(tensor.dtype);
    if (!dtype.has_value()) {
      return Rejected({"W0723", absl::StrCat(opened.reader->path(), ", tensor ", name),
                       "a tensor of F32, BF16, F16, I32 or BOOL", tensor.dtype,
                       "a file without the tensor, or with another type"});
    }
    tensors[name] = {opened.reader.get(), name, *dtype, tensor.shape, tensor.owner};
  }
  return tensors;
}

absl::StatusOr<std::map<std::string, NewTensor>> Apply(const Edits& edits,
                                                       std::map<std::string, NewTensor> tensors,
                                                       const std::string& path) {
  for (const std::string& text : edits.drop) WEIR_RETURN_IF_ERROR(Drop(text, path, &tensors));
  for (const std::string& text : edits.rename) WEIR_RETURN_IF_ERROR(Rename(text, path, &tensors));
  for (const std::string& text : edits.cast) WEIR_RETURN_IF_ERROR(Cast(text, path, &tensors));
  return tensors;
}

absl::StatusOr<int64_t> AddMissing(const OpenTensors& from,
                                   std::map<std::string, NewTensor>* tensors) {
  WEIR_ASSIGN_OR_RETURN(const auto all, AllOf(from));
  int64_t added = 0;
  for (const auto& [name, tensor] : all) added += tensors->emplace(name, tensor).second ? 1 : 0;
  return added;
}

absl::Status CheckPlace(const std::string& directory, int64_t step, Existing existing) {
  const std::vector<int64_t> steps = store::CommittedSteps(directory);
  if (existing == Existing::kReplace || !std::binary_search(steps.begin(), steps.end(), step))
    return absl::OkStatus();
  return Rejected({"W0724", directory, absl::StrCat("no checkpoint of step ", step),
                   store::StepFolderName(step) + ", which would be replaced",
                   "another folder, or --overwrite to replace that checkpoint"});
}

absl::StatusOr<std::string> WriteFolder(const std::string& directory,
                                        const store::CheckpointFacts& facts,
                                        const std::map<std::string, NewTensor>& tensors,
                                        Existing existing) {
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<store::FolderClaim> claim,
                        store::FolderClaim::Take(directory));
  WEIR_RETURN_IF_ERROR(CheckPlace(directory, facts.step, existing));
  WEIR_ASSIGN_OR_RETURN(
      const std::unique_ptr<store::PendingCheckpoint> pending,
      store::PendingCheckpoint::Open(directory, facts.step, store::PendingCheckpoint::NewToken(),
                                     store::PendingCheckpoint::Role::kMake));
  std::map<std::string, store::TensorFacts> tensor_facts;
  std::vector<store::ShardFileRecord> files;
  std::vector<std::string> names;
  int64_t bytes = 0;
  const auto write = [&]() -> absl::Status {
    if (names.empty()) return absl::OkStatus();
    WEIR_ASSIGN_OR_RETURN(
        store::ShardFileRecord file,
        WriteFile({pending->folder(), store::ShardFileName(static_cast<int32_t>(files.size())), "",
                   facts.step, pending->final_path(), facts.job_id},
                  tensors, names));
    files.push_back(std::move(file));
    names.clear();
    bytes = 0;
    return absl::OkStatus();
  };
  for (const auto& [name, tensor] : tensors) {
    tensor_facts[name] = {store::StoredName(tensor.dtype), tensor.shape, tensor.owner};
    names.push_back(name);
    bytes += WholeOf(tensor).bytes();
    if (bytes >= kRewrittenFileBytes) WEIR_RETURN_IF_ERROR(write());
  }
  WEIR_RETURN_IF_ERROR(write());
  WEIR_ASSIGN_OR_RETURN(
      const store::CheckpointIndex index,
      store::MakeIndex(facts, std::move(tensor_facts), std::move(files), pending->final_path()));
  WEIR_RETURN_IF_ERROR(pending->Publish(index));
  WEIR_RETURN_IF_ERROR(OpenSound(pending->final_path()).status());
  WEIR_RETURN_IF_ERROR(store::PointLatest(directory, facts.step));
  return pending->final_path();
}

}  // namespace weir::checkpoint
