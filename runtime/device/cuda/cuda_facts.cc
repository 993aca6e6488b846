#include "runtime/device/cuda/cuda_facts.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/problem.h"
#include "runtime/base/unit_text.h"

namespace weir::device {
namespace {

// The least for which the kernels are compiled (tools/deps/cuda.bzl).
constexpr int kComputeMajorMin = 8;

std::string DriverText(const CudaFacts& facts) {
  if (facts.driver_version == 0) return "no NVIDIA driver";
  return absl::StrCat("a driver for CUDA ", CudaVersionText(facts.driver_version));
}

absl::Status Unavailable(const Problem& problem) {
  return ErrorOf(absl::StatusCode::kUnavailable, problem);
}

}  // namespace

CudaFacts FindGpus() {
  static const CudaFacts facts = FindGpus(MakeCudaRuntimeApi().get());
  return facts;
}

CudaFacts FindGpus(CudaApi* api) {
  CudaFacts facts;
  if (api == nullptr) return facts;
  facts.program = CudaFacts::Program::kWithCuda;
  api->GetVersions(&facts.driver_version, &facts.runtime_version);
  int count = 0;
  const CudaResult counted = api->CountDevices(&count);
  if (counted != CudaResult::kSuccess) {
    if (counted != CudaResult::kNoDevice) facts.problem = api->TextOf(counted);
    return facts;
  }
  for (int gpu = 0; gpu < count; ++gpu) api->GetFacts(gpu, &facts.gpus.emplace_back());
  return facts;
}

absl::Status CheckProgram(const CudaFacts& facts) {
  if (facts.program == CudaFacts::Program::kWithCuda) return absl::OkStatus();
  return Unavailable({"W0552", "", "a program that was built with the CUDA Toolkit",
                      "one that was built without",
                      "a build on a machine with the toolkit in /usr/local/cuda, or --device cpu"});
}

absl::Status CheckGpus(const CudaFacts& facts) {
  if (absl::Status built = CheckProgram(facts); !built.ok()) return built;
  if (facts.driver_version < facts.runtime_version / 1000 * 1000) {
    return Unavailable(
        {"W0550", "",
         absl::StrCat("an NVIDIA driver for CUDA ", facts.runtime_version / 1000, ".0 or later"),
         DriverText(facts),
         "nvidia-smi, which shows the driver, a machine with a GPU, or --device cpu"});
  }
  const std::string expected =
      absl::StrCat("a GPU of compute capability ", kComputeMajorMin, ".0 or later (A100, H100)");
  if (facts.gpus.empty()) {
    return Unavailable({"W0551", "", expected,
                        absl::StrCat("0 GPUs, with ", DriverText(facts),
                                     facts.problem.empty() ? "" : ": ", facts.problem),
                        "CUDA_VISIBLE_DEVICES, which may hide GPUs, a machine with a GPU, or "
                        "--device cpu"});
  }
  for (size_t gpu = 0; gpu < facts.gpus.size(); ++gpu) {
    const GpuFacts& found = facts.gpus[gpu];
    if (found.compute_major >= kComputeMajorMin) continue;
    return Unavailable(
        {"W0551", absl::StrCat("GPU ", gpu), expected,
         absl::StrCat(found.name, ", of ", found.compute_major, ".", found.compute_minor),
         "CUDA_VISIBLE_DEVICES to choose other GPUs, or --device cpu"});
  }
  return absl::OkStatus();
}

std::string CudaVersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

std::string CudaText(const CudaFacts& facts) {
  if (facts.program == CudaFacts::Program::kWithoutCuda) return "a program without CUDA";
  const std::string versions =
      absl::StrCat(DriverText(facts), ", runtime ", CudaVersionText(facts.runtime_version));
  if (facts.driver_version == 0) return versions;
  if (facts.gpus.empty())
    return absl::StrCat("0 GPUs; ", versions, facts.problem.empty() ? "" : "; ", facts.problem);
  const auto text = [](std::string* out, const GpuFacts& gpu) {
    absl::StrAppend(out, gpu.name, ", ", BytesText(static_cast<double>(gpu.memory_bytes)));
  };
  return absl::StrCat(absl::StrJoin(facts.gpus, "; ", text), "; ", versions);
}

}  // namespace weir::device
