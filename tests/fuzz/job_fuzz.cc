// Reads any text as a job file, compiles it in every mode, and lowers it for all ranks of small
// meshes.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "google/protobuf/text_format.h"
#include "tests/fuzz/compile_check.h"
#include "tests/fuzz/job_mutator.h"
#include "tools/job/job_file.h"
#include "tools/job/job_text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  absl::StatusOr<weir::proto::Job> job =
      weir::job::ParseJob(std::string(reinterpret_cast<const char*>(data), size), "job");
  if (!job.ok()) return 0;
  if (weir::fuzz::RepeatsVeryOften(*job)) return 0;
  const absl::StatusOr<std::string> refused =
      weir::fuzz::CheckCompile(*job, {.ranks_lowered_max = 8});
  if (!refused.ok()) {
    std::fprintf(stderr, "%s\n", refused.status().ToString().c_str());
    std::abort();
  }
  return 0;
}

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size)
    __attribute__((weak));

// libFuzzer's hook: it mostly changes the job, and sometimes bytes.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  weir::proto::Job job;
  google::protobuf::TextFormat::Parser parser;
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (seed % 16 == 0 || !parser.ParseFromString(text, &job))
    return LLVMFuzzerMutate(data, size, max_size);
  weir::fuzz::MutateJob(seed, &job);
  const std::string changed = weir::job::JobText(job, "");
  if (changed.size() > max_size) return size;
  std::memcpy(data, changed.data(), changed.size());
  return changed.size();
}
