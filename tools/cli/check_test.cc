// Tests that `weir check` and `weir train` refuse the same jobs with the same words, before
// anything is trained, and tests the effect of --steps and --resume on a run.
#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/temporary_folder_testing.h"
#include "runtime/store/checkpoint_folder.h"
#include "runtime/store/weight_index.h"
#include "tools/cli/cli.h"

namespace weir::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct Outcome {
  int code;
  std::string out, err;
};

Outcome Weir(const std::vector<std::string>& args) {
  std::ostringstream out, err;
  const int code = RunCli(args, out, err);
  return {code, out.str(), err.str()};
}

std::string PathFor(const std::string& name) {
  return std::string(::testing::TempDir()) + "/" + name;
}

std::string WriteFile(const std::string& name, const std::string& text) {
  std::ofstream(PathFor(name), std::ios::binary) << text;
  return PathFor(name);
}

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

bool Exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

std::string Zoo(const std::string& name, const std::vector<std::string>& flags) {
  std::vector<std::string> words = {"zoo"};
  words.insert(words.end(), flags.begin(), flags.end());
  const Outcome zoo = Weir(words);
  EXPECT_EQ(zoo.code, 0) << zoo.err;
  return WriteFile(name, zoo.out);
}

// Returns a small model of images over synthetic data.
std::string ImageJob() {
  return Zoo("check_images.textproto", {"mlp", "--pixels", "16", "--hidden", "8", "--classes", "4",
                                        "--batch", "8", "--steps", "6", "--warmup", "0"});
}

// Returns a small language model that holds out a part of its text.
std::string TextJob() {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "the quick fox. ";
  return Zoo("check_text.textproto", {"gpt", "--layers", "1", "--hidden", "16", "--heads", "2",
                                      "--sequence", "16", "--batch", "4", "--steps", "6", "--data",
                                      WriteFile("check_fox.txt", text), "--held-out", "0.2"});
}

struct BadJob {
  const char* name;
  std::vector<std::string> words;  // the arguments after the verb
  int exit_code;
  std::string code;
};

// Orders of the axes of 32 devices. The stages of the pipeline are neighbours in some orders and
// far apart in others.
const char* const kMeshesOf32[] = {"dp=4,pp=4,tp=2", "dp=4,tp=2,pp=4", "pp=4,dp=4,tp=2",
                                   "pp=4,tp=2,dp=4", "tp=2,pp=4,dp=4", "tp=2,dp=4,pp=4"};

class CheckTest : public ::testing::Test {
 protected:
  std::vector<BadJob> BadJobs() {
    const std::string images = ImageJob(), text = TextJob();
    const std::string checkpoint = PathFor("check_six.safetensors"),
                      weights = PathFor("check_weights.safetensors"), run = PathFor("check_run");
    EXPECT_EQ(Weir({"train", images, "--checkpoint", checkpoint, "--save", weights}).code, 0);
    EXPECT_EQ(Weir({"train", images, "--checkpoint", run + "/"}).code, 0);
    return {
        {"no learning rate", {images, "--set", "training.schedule.learning_rate=0"}, 65, "W0921"},
        {"a decay to 0 before the end",
         {images, "--steps", "9", "--set", "training.schedule.min_learning_rate=0"},
         65,
         "W0922"},
        {"no steps", {images, "--set", "training.steps=0"}, 65, "W0924"},
        {"an axis that splits nothing", {images, "--mesh", "dp=2,sp=2"}, 65, "W0920"},
        {"more stages than calls", {text, "--mesh", "pp=9"}, 65, "W0470"},
        {"targets of another type",
         {text, "--set", "graph.function[main].input[tokens].type=f32[batch, sequence]"},
         65,
         ""},
        {"a text that is not there", {text, "--set", "data.text.path=/no/such/text"}, 66, "W0040"},
        {"too little held out", {text, "--set", "data.text.held_out=0.0001"}, 65, "W0054"},
        {"memory of a device", {images, "--set", "runtime.memory_bytes_max=1000"}, 65, "W0487"},
        {"threads", {images, "--threads", "100000"}, 65, "W0081"},
        {"processes without ranks", {images, "--mesh", "dp=2", "--processes", "3"}, 65, ""},
        {"local collectives between processes",
         {images, "--mesh", "dp=2", "--processes", "2", "--collectives", "local"},
         65,
         "W0955"},
        {"NCCL without GPUs", {images, "--mesh", "dp=2", "--collectives", "nccl"}, 65, "W0957"},
        {"an emulated NCCL between processes",
         {images, "--mesh", "dp=2", "--processes", "2", "--device", "cuda-emulated",
          "--collectives", "nccl"},
         65,
         "W0955"},
        {"a mesh that cannot become smaller",
         {images, "--mesh", "dp=2", "--processes", "2", "--on-failure", "elastic", "--min-devices",
          "99"},
         65,
         "W0729"},
        {"heartbeats that are too slow",
         {images, "--mesh", "dp=2", "--processes", "2", "--heartbeat", "3", "--dead-after", "4"},
         65,
         "W0074"},
        {"--init and --resume", {images, "--init", weights, "--resume", checkpoint}, 65, "W0074"},
        {"--checkpoint-every alone", {images, "--checkpoint-every", "2"}, 65, "W0074"},
        {"weights of another model",
         {images, "--init", weights, "--set", "graph.dim[hidden].size=4"},
         65,
         "W0044"},
        {"weights as a checkpoint", {images, "--resume", weights}, 65, "W0076"},
        {"a checkpoint from beyond the end",
         {images, "--resume", checkpoint, "--steps", "4"},
         65,
         "W0923"},
        {"a checkpoint of other updates",
         {images, "--resume", checkpoint, "--steps", "12", "--set", "training.gradient_delay=1"},
         65,
         "W0548"},
        {"one file for two outputs",
         {images, "--save", PathFor("one"), "--checkpoint", PathFor("one")},
         65,
         "W0926"},
        {"weights over the checkpoint",
         {images, "--resume", checkpoint, "--save", checkpoint},
         65,
         "W0926"},
        {"a trace over the weights", {images, "--init", weights, "--trace", weights}, 65, "W0926"},
        {"no folder for --save", {images, "--save", "/no/such/folder/w.safetensors"}, 66, "W0046"},
        {"no folder for --checkpoint",
         {images, "--checkpoint", "/no/such/folder/c.safetensors"},
         66,
         "W0046"},
        {"checkpoints in /proc", {images, "--checkpoint", "/proc/x/"}, 66, "W0046"},
        {"a checkpoint in another one",
         {images, "--checkpoint", run + "/step-000000006/x"},
         65,
         "W0926"},
        {"weights over the index of a checkpoint",
         {images, "--save", run + "/step-000000006/index.pb"},
         65,
         "W0926"},
        {"weights over the name of the newest checkpoint",
         {images, "--save", run + "/latest"},
         65,
         "W0926"},
        {"a trace in a checkpoint", {images, "--trace", run + "/step-000000006/t"}, 65, "W0926"},
        {"logs in a checkpoint",
         {images, "--processes", "1", "--logs", run + "/step-000000006"},
         65,
         "W0926"},
        {"weights in /proc", {images, "--save", "/proc/x"}, 66, "W0046"},
        {"a checkpoint in /proc", {images, "--checkpoint", "/proc/x"}, 66, "W0046"},
        {"a trace in /proc", {images, "--trace", "/proc/x"}, 66, "W0075"},
        {"no folder for --tensorboard", {images, "--tensorboard", "/no/such/tb"}, 66, "W0075"},
        {"a file as --tensorboard", {images, "--tensorboard", images}, 66, "W0075"},
        {"events in /proc", {images, "--tensorboard", "/proc/x/"}, 66, "W0075"},
        {"events in a folder that takes no files", {images, "--tensorboard", "/proc"}, 66, "W0075"},
        {"no folder for --trace", {images, "--trace", "/no/such/folder/t.pftrace"}, 66, "W0075"},
        {"a folder as --save", {images, "--save", ::testing::TempDir()}, 66, "W0046"},
    };
  }
};

TEST_F(CheckTest, AxesMayStandInAnyOrder) {
  const std::string job =
      Zoo("check_axes.textproto", {"gpt", "--layers", "4", "--hidden", "32", "--heads", "4",
                                   "--sequence", "16", "--batch", "16"});
  for (const char* mesh : kMeshesOf32) {
    SCOPED_TRACE(mesh);
    const Outcome check = Weir({"check", job, "--mesh", mesh, "--any-machine"});
    EXPECT_EQ(check.code, 0) << check.err;
  }
}

TEST_F(CheckTest, WhatTrainRefusesCheckRefusesWithTheSameWordsAndNothingIsTrained) {
  for (const BadJob& bad : BadJobs()) {
    SCOPED_TRACE(bad.name);
    const std::string metrics = PathFor("check_refused.jsonl");
    std::remove(metrics.c_str());
    std::vector<std::string> words = bad.words;
    words.insert(words.end(), {"--metrics", metrics});
    words.insert(words.begin(), "check");
    const Outcome checked = Weir(words);
    words[0] = "train";
    const Outcome trained = Weir(words);
    EXPECT_EQ(checked.code, bad.exit_code) << checked.err;
    EXPECT_THAT(checked.err, HasSubstr(absl::StrCat("weir: ", bad.code)));
    EXPECT_EQ(trained.code, checked.code) << trained.err;
    EXPECT_THAT(trained.err, HasSubstr(checked.err.substr(checked.err.find("weir: W"))));
    EXPECT_FALSE(Exists(metrics)) << "something was trained, or its files begun";
  }
}

TEST_F(CheckTest, WhatReadsNoCheckpointIsRefusedBeforeTheCheckpointToResumeIsSought) {
  const TemporaryFolder folder;
  const std::string images = ImageJob(), empty = folder.PathFor("empty");
  std::filesystem::create_directory(empty);
  const std::string weights = folder.Write("w.safetensors", "");
  const auto other = store::FolderClaim::Take(folder.PathFor("busy")).value();
  for (const std::string verb : {"check", "train"}) {
    SCOPED_TRACE(verb);
    EXPECT_THAT(Weir({verb, images, "--resume", empty}).err, HasSubstr("W0711"));
    EXPECT_THAT(Weir({verb, images, "--resume", empty, "--init", weights}).err, HasSubstr("W0074"));
    EXPECT_THAT(
        Weir({verb, images, "--resume", empty, "--checkpoint", folder.PathFor("busy/")}).err,
        HasSubstr("W0741"));
  }
}

TEST_F(CheckTest, CheckTakesACommandOfTrainAndWritesNothing) {
  const std::string save = PathFor("check_nothing.safetensors");
  const std::string metrics = PathFor("check_nothing.jsonl");
  const Outcome check = Weir({"check", TextJob(), "--mesh", "dp=2", "--processes", "2", "--save",
                              save, "--metrics", metrics, "--steps", "3"});
  EXPECT_EQ(check.code, 0) << check.err;
  EXPECT_THAT(check.out, AllOf(HasSubstr("is sound"), HasSubstr("bytes to train on")));
  EXPECT_FALSE(Exists(save));
  EXPECT_FALSE(Exists(metrics));
}

TEST_F(CheckTest, NumbersThatNoRunCanHaveAreRefusedBeforeAnythingElse) {
  const std::string job = ImageJob();
  for (const auto& [flag, value] :
       std::vector<std::pair<std::string, std::string>>{{"--seed", "18446744073709551616"},
                                                        {"--steps", "9223372036854775808"},
                                                        {"--steps", "-1"},
                                                        {"--heartbeat", "nan"},
                                                        {"--stuck-after", "0.01"},
                                                        {"--grace", "inf"}}) {
    const Outcome check = Weir({"check", job, flag, value});
    EXPECT_EQ(check.code, 2) << flag;
    EXPECT_THAT(check.err, AllOf(HasSubstr(flag), HasSubstr("found " + value)));
  }
  const std::vector<std::vector<std::string>> verbs = {
      {"train", job}, {"generate", job, "--init", "none"}, {"sim", job}, {"zoo", "gpt"}};
  for (std::vector<std::string> verb : verbs) {
    verb.insert(verb.end(), {"--seed", "18446744073709551616"});
    const Outcome refused = Weir(verb);
    EXPECT_EQ(refused.code, 2) << verb.front();
    EXPECT_THAT(refused.err, HasSubstr("--seed"));
  }
}

TEST_F(CheckTest, ASmallerMeshOnThisMachineNeedsProcessesThatLiveOn) {
  const std::string job = ImageJob();
  const auto error = [&job](const std::vector<std::string>& flags) {
    std::vector<std::string> words = {"check", job, "--mesh", "dp=2", "--min-devices", "1"};
    words.insert(words.end(), flags.begin(), flags.end());
    const Outcome refused = Weir(words);
    EXPECT_EQ(refused.code, 65) << refused.err;
    EXPECT_THAT(refused.err, HasSubstr("W0726 at --min-devices 1"));
    return refused.err;
  };
  EXPECT_THAT(error({}), HasSubstr("Try: --processes 2 --on-failure elastic."));
  EXPECT_THAT(error({"--on-failure", "elastic"}), HasSubstr("Try: --processes 2."));
  for (const char* other : {"stop", "restart"}) {
    EXPECT_THAT(error({"--processes", "2", "--on-failure", other}),
                HasSubstr("Try: --on-failure elastic."));
  }
}

TEST_F(CheckTest, MetricsHaveAFileOfTheirOwn) {
  const std::string job = ImageJob();
  const Outcome over_the_job = Weir({"check", job, "--metrics", job});
  EXPECT_EQ(over_the_job.code, 65);
  EXPECT_THAT(over_the_job.err, HasSubstr("W0926"));
  const Outcome folder = Weir({"check", job, "--metrics", ::testing::TempDir()});
  EXPECT_EQ(folder.code, 66);
  EXPECT_THAT(folder.err, HasSubstr("W0075"));
  const Outcome empty = Weir({"check", job, "--metrics", ""});
  EXPECT_EQ(empty.code, 2);
  EXPECT_THAT(empty.err, HasSubstr("expected a path; found an empty text"));
}

TEST_F(CheckTest, WhatOnlyThisMachineLacksMayBeLeftOut) {
  const std::vector<std::string> large = {"check",   ImageJob(), "--mesh",
                                          "dp=5000", "--set",    "graph.dim[batch].size=5000"};
  EXPECT_THAT(Weir(large).err, HasSubstr("W0080"));
  std::vector<std::string> anywhere = large;
  anywhere.push_back("--any-machine");
  EXPECT_EQ(Weir(anywhere).code, 0);
}

TEST_F(CheckTest, RanksWithoutWorkAreNamedByCheckPlanAndTrain) {
  for (const char* verb : {"check", "plan", "train"}) {
    const Outcome run = Weir({verb, TextJob(), "--mesh", "tp=4"});
    EXPECT_EQ(run.code, 0) << run.err;
    // plan prints the sentence on its screen, where lines break, and check breaks warnings.
    const std::string said =
        absl::StrReplaceAll(run.out + run.err, {{"\n          ", " "}, {"\n  ", " "}});
    EXPECT_THAT(said, AllOf(HasSubstr("mesh axis tp splits dimension heads, which has 2 units, "
                                      "over 4 devices: ranks 2 to 3 hold no part of it"),
                            Not(HasSubstr("nor of anything"))))
        << verb;
  }
  EXPECT_THAT(Weir({"plan", TextJob(), "--mesh", "sp=4"}).err, HasSubstr("W0920"));
}

TEST_F(CheckTest, RulesOfPrecisionAreCountedAndThoseWithoutUseNamed) {
  for (const char* verb : {"check", "plan"}) {
    const Outcome run = Weir({verb, TextJob(), "--set", "training.precision=BF16", "--set",
                              "training.precision_of={op: \"*norm*\"}", "--set",
                              "training.precision_of={op: \"lstm\"}"});
    EXPECT_EQ(run.code, 0) << run.err;
    const std::string said =
        absl::StrReplaceAll(run.out + run.err, {{"\n          ", " "}, {"\n  ", " "}});
    EXPECT_THAT(said, AllOf(HasSubstr("precision bf16; f32 in "),
                            HasSubstr("operations: precision_of[0] (op *norm*) "),
                            HasSubstr("W0860 at training.precision_of[1] (op lstm)")))
        << verb;
  }
}

TEST_F(CheckTest, ALossScaleIsNoWeight) {
  const auto counted = [&](const char* precision) {
    const Outcome run = Weir({"check", TextJob(), "--set", precision});
    EXPECT_EQ(run.code, 0) << run.err;
    return run.out.substr(0, run.out.find(" weights, "));
  };
  const std::string in_f32 = counted("training.precision=F32");
  EXPECT_THAT(in_f32, HasSubstr("parameters in "));
  EXPECT_EQ(counted("training.precision=F16"), in_f32);
}

TEST_F(CheckTest, ARunInTwoPiecesEndsWithTheBytesOfOne) {
  const std::string job = ImageJob(), whole = PathFor("pieces_whole.safetensors"),
                    half = PathFor("pieces_half.safetensors"),
                    pieces = PathFor("pieces.safetensors");
  EXPECT_EQ(Weir({"train", job, "--checkpoint", whole}).code, 0);
  const Outcome first = Weir({"train", job, "--steps", "3", "--checkpoint", half});
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(
      first.err,
      HasSubstr(
          "learning rates follow the job's 6 steps (training.steps), and this run ends at step 3"));
  const Outcome second = Weir({"train", job, "--resume", half, "--checkpoint", pieces});
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_THAT(second.err, Not(HasSubstr("another schedule")));
  EXPECT_EQ(ReadFile(pieces), ReadFile(whole));
}

TEST_F(CheckTest, OneCommandBeginsARunAndGoesOnWithIt) {
  const TemporaryFolder folder;
  const std::string job = ImageJob(), run = folder.PathFor("run");
  const std::string begins = run + "/ has no checkpoint yet: the run begins at step 0\n";
  const auto with = [&](std::vector<std::string> words, const std::string& resume) {
    const std::vector<std::string> rest = {job,        "--checkpoint", run + "/",
                                           "--resume", resume,         "--steps",
                                           "3",        "--logs",       folder.PathFor("logs")};
    words.insert(words.end(), rest.begin(), rest.end());
    return Weir(words);
  };
  for (const bool is_there : {false, true}) {
    SCOPED_TRACE(is_there);
    if (is_there) std::filesystem::create_directory(run);
    for (const std::string& resume : {run, run + "/"}) {
      for (const std::vector<std::string>& verb :
           {std::vector<std::string>{"check"}, {"train", "--dry-run"}}) {
        const Outcome begun = with(verb, resume);
        EXPECT_EQ(begun.code, 0) << begun.err;
        EXPECT_THAT(begun.err, HasSubstr(begins));
      }
    }
  }
  const Outcome first = with({"train"}, run + "/");
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.err, HasSubstr(begins));
  EXPECT_THAT(first.out, StartsWith("3 steps"));
  const Outcome second = with({"train"}, run + "/");
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_THAT(second.err, Not(HasSubstr("has no checkpoint yet")));
  EXPECT_THAT(second.err, HasSubstr(run + "/step-000000003"));
}

TEST_F(CheckTest, ARunThatWasKilledInItsFirstCheckpointBeginsAgainWithTheSameCommand) {
  const TemporaryFolder folder;
  const std::string job = ImageJob(), run = folder.PathFor("run/");
  const std::string left = "run/step-000000003.partial-0123456789abcdef";
  folder.Write(left + "/rank-00000.safetensors", "a part");
  for (const std::string verb : {"check", "train"}) {
    SCOPED_TRACE(verb);
    const Outcome begun = Weir({verb, job, "--checkpoint", run, "--resume", run, "--steps", "3"});
    EXPECT_EQ(begun.code, 0) << begun.err;
    EXPECT_THAT(begun.err, HasSubstr("run/ has no checkpoint yet: the run begins at step 0\n"));
  }
  EXPECT_TRUE(Exists(run + "step-000000003/index.pb"));
  EXPECT_FALSE(Exists(folder.PathFor(left)));
}

TEST_F(CheckTest, ARunThatFindsNoCheckpointToResumeBeginsOnlyInAFolderWithoutSteps) {
  const TemporaryFolder folder;
  const std::string job = ImageJob(), run = folder.PathFor("run/");
  for (const char* left : {"step-000000003", "step-000000003.removed-0123456789abcdef", "latest"}) {
    std::filesystem::create_directories(run + left);
    for (const std::string verb : {"check", "train"}) {
      SCOPED_TRACE(absl::StrCat(verb, " ", left));
      const Outcome refused = Weir({verb, job, "--checkpoint", run, "--resume", run});
      EXPECT_NE(refused.code, 0);
      EXPECT_THAT(refused.err, AllOf(HasSubstr("W0711"), Not(HasSubstr("begins at step 0"))));
    }
    std::filesystem::remove_all(run);
  }
  // The folder of another run has to be there.
  for (const std::string verb : {"check", "train"}) {
    SCOPED_TRACE(verb);
    const Outcome refused =
        Weir({verb, job, "--checkpoint", run, "--resume", folder.PathFor("b/")});
    EXPECT_NE(refused.code, 0);
    EXPECT_THAT(refused.err, AllOf(HasSubstr("W0711"), HasSubstr("found nothing at this path")));
  }
  EXPECT_FALSE(Exists(run));
}

TEST_F(CheckTest, ARunGoesOnFromAnExportOfAllStatesAsFromItsFolder) {
  const std::string job = ImageJob(), run = PathFor("export_run"),
                    expected = PathFor("export_expected.safetensors");
  ASSERT_EQ(Weir({"train", job, "--steps", "3", "--checkpoint", run + "/"}).code, 0);
  ASSERT_EQ(Weir({"train", job, "--resume", run, "--checkpoint", expected}).code, 0);
  for (const std::string size : {"1GB", "1KB"}) {
    SCOPED_TRACE(size);
    const std::string exported = PathFor("export_" + size + ".safetensors"),
                      states = exported + (size == "1KB" ? ".index.json" : ""),
                      copy = PathFor("export_copy_" + size),
                      end = PathFor("export_end_" + size + ".safetensors");
    const Outcome written =
        Weir({"checkpoint", "export", run, "--all", "-o", exported, "--max-shard-size", size});
    ASSERT_EQ(written.code, 0) << written.err;
    EXPECT_EQ(Weir({"checkpoint", "verify", states}).code, 0);
    EXPECT_EQ(Weir({"checkpoint", "import", states, "-o", copy}).code, 0);
    EXPECT_THAT(Weir({"checkpoint", "diff", run, copy}).out, StartsWith("equal"));
    for (const std::string& from : {states, copy}) {
      const Outcome resumed = Weir({"train", job, "--resume", from, "--checkpoint", end});
      EXPECT_EQ(resumed.code, 0) << resumed.err;
      EXPECT_EQ(ReadFile(end), ReadFile(expected)) << from;
    }
    if (states == exported) continue;
    for (const std::string& shard : store::FilesOfWeights(states)) {
      if (shard == states) continue;
      for (const char* flag : {"--save", "--checkpoint", "--metrics", "--trace"}) {
        const Outcome over = Weir({"train", job, "--resume", states, flag, shard});
        EXPECT_EQ(over.code, 65) << flag << " " << over.err;
        EXPECT_THAT(absl::StrReplaceAll(over.err, {{"\n  ", " "}}),
                    HasSubstr("found that of a file of --resume, which would be lost"));
      }
    }
  }
}

TEST_F(CheckTest, ARunStartsFromAveragesAsFromTheirExport) {
  const std::string job = ImageJob(), run = PathFor("averaged_run"),
                    exported = PathFor("averaged.safetensors"),
                    ended = PathFor("averaged_end.safetensors"),
                    expected = PathFor("averaged_expected.safetensors"),
                    plain = PathFor("averaged_plain.safetensors");
  ASSERT_EQ(
      Weir({"train", job, "--set", "training.average.decay=0.5", "--checkpoint", run + "/"}).code,
      0);
  ASSERT_EQ(Weir({"checkpoint", "export", run, "--average", "-o", exported}).code, 0);
  ASSERT_EQ(Weir({"train", job, "--init", exported, "--save", expected}).code, 0);
  EXPECT_EQ(Weir({"check", job, "--init", run, "--average"}).code, 0);
  const Outcome trained = Weir({"train", job, "--init", run, "--average", "--save", ended});
  EXPECT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(Weir({"checkpoint", "diff", ended, expected}).out, StartsWith("equal"));
  ASSERT_EQ(Weir({"train", job, "--init", run, "--save", plain}).code, 0);
  EXPECT_THAT(Weir({"checkpoint", "diff", plain, expected}).out, Not(StartsWith("equal")));
  for (const char* verb : {"check", "train"}) {
    const Outcome without = Weir({verb, job, "--average"});
    EXPECT_EQ(without.code, 65);
    EXPECT_THAT(without.err, HasSubstr("W0074 at --average"));
    EXPECT_THAT(Weir({verb, job, "--init", exported, "--average"}).err, HasSubstr("W0084"));
  }
}

TEST_F(CheckTest, ACheckpointOfAnotherScheduleIsNoticed) {
  const std::string job = ImageJob(), half = PathFor("schedule_half.safetensors");
  EXPECT_EQ(Weir({"train", job, "--set", "training.steps=3", "--checkpoint", half}).code, 0);
  for (const char* verb : {"check", "train"}) {
    const Outcome second = Weir({verb, job, "--resume", half});
    EXPECT_EQ(second.code, 0) << second.err;
    EXPECT_THAT(absl::StrReplaceAll(second.err, {{"\n  ", " "}}),
                AllOf(HasSubstr("WARNING: the checkpoint is of a run with another schedule"),
                      HasSubstr("COSINE to 0.0001 at update 3"),
                      HasSubstr("COSINE to 0.0001 at update 6")));
  }
}

TEST_F(CheckTest, AJobWithoutANameIsCalledByItsFile) {
  std::string text = ReadFile(ImageJob());
  text = absl::StrReplaceAll(text, {{"\nname: \"mlp\"", ""}});
  const std::string job = WriteFile("check_nameless.textproto", text);
  EXPECT_THAT(Weir({"check", job}).out, StartsWith(job + " is sound: "));
  const int input = ::dup(STDIN_FILENO), file = ::open(job.c_str(), O_RDONLY);
  ::dup2(file, STDIN_FILENO);
  const Outcome piped = Weir({"check", "-"});
  ::dup2(input, STDIN_FILENO);
  ::close(input);
  ::close(file);
  EXPECT_THAT(piped.out, StartsWith("the job of standard input is sound: ")) << piped.err;
  EXPECT_THAT(Weir({"train", job}).err, HasSubstr("\nthe job: "));
}

TEST_F(CheckTest, AWarningIsBrokenAsAnErrorIs) {
  const std::string err = Weir({"check", TextJob(), "--mesh", "tp=4"}).err;
  EXPECT_THAT(err, HasSubstr("WARNING: mesh axis tp"));
  for (const absl::string_view line : absl::StrSplit(err, '\n'))
    EXPECT_LE(line.size(), size_t{100}) << line;
}

TEST_F(CheckTest, AFinishedRunThatIsResumedSaysSoAndHandsOutItsWeights) {
  const std::string job = ImageJob(), done = PathFor("done.safetensors"),
                    weights = PathFor("done_weights.safetensors"),
                    again = PathFor("again.safetensors");
  EXPECT_EQ(Weir({"train", job, "--checkpoint", done, "--save", weights}).code, 0);
  const Outcome resumed = Weir({"train", job, "--resume", done, "--save", again});
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(resumed.out, "6 steps, none of them in this run\n");
  EXPECT_EQ(ReadFile(again), ReadFile(weights));
}

TEST_F(CheckTest, IntermediateCheckpointsAreOnTheConsoleAndInTheMetrics) {
  const std::string metrics = PathFor("intermediate.jsonl");
  const Outcome run =
      Weir({"train", ImageJob(), "--checkpoint", PathFor("intermediate.safetensors"),
            "--checkpoint-every", "2", "--metrics", metrics});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.err, AllOf(HasSubstr("checkpoint of step 2 written to "),
                             HasSubstr("checkpoint of step 4 written to "),
                             Not(HasSubstr("checkpoint of step 3"))));
  std::istringstream lines(ReadFile(metrics));
  std::string line;
  for (int step = 1; std::getline(lines, line); ++step) {
    EXPECT_EQ(line.find("checkpoint_seconds") != std::string::npos, step == 2 || step == 4) << line;
  }
}

TEST_F(CheckTest, NoCommandReplacesAFileThatItReads) {
  const std::string job = PathFor("precious.textproto");
  {
    std::ofstream out(job);
    out << Weir({"zoo", "mlp", "--layers", "1", "--hidden", "4", "--batch", "4", "--steps", "2"})
               .out;
  }
  const std::string before = ReadFile(job);
  for (const char* flag : {"--save", "--metrics", "--trace", "--checkpoint"}) {
    const Outcome train = Weir({"train", job, flag, job});
    EXPECT_EQ(train.code, 65) << flag << train.err;
    EXPECT_THAT(train.err, HasSubstr("W0926")) << flag;
  }
  EXPECT_EQ(Weir({"sim", job, "--cluster", "defaults", "--trace", job}).code, 65);
  EXPECT_EQ(Weir({"view", job, "--export", job}).code, 65);
  EXPECT_EQ(ReadFile(job), before);
}

TEST_F(CheckTest, NoCommandWritesIntoACommittedCheckpoint) {
  const std::string job = ImageJob(), run = PathFor("check_committed"),
                    weights = PathFor("check_committed.safetensors");
  ASSERT_EQ(Weir({"train", job, "--checkpoint", run + "/", "--save", weights}).code, 0);
  const std::string step = run + "/step-000000006", shard = step + "/rank-00000.safetensors";
  const auto contents = [&run] {
    std::map<std::string, std::string> of;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(run))
      of[entry.path().string()] = entry.is_regular_file() ? ReadFile(entry.path().string()) : "";
    return of;
  };
  const std::map<std::string, std::string> before = contents();
  ASSERT_EQ(before.count(shard), 1u);
  const std::vector<std::vector<std::string>> commands = {
      {"train", job, "--save", shard},
      {"train", job, "--metrics", shard},
      {"train", job, "--trace", shard},
      {"train", job, "--tensorboard", step + "/events"},
      {"eval", job, "--outputs", step},
      {"export", job, "--weights", weights, "--safetensors", step + "/w.safetensors"},
      {"checkpoint", "export", run, "--safetensors", "-o", shard},
      {"checkpoint", "export", weights, "--safetensors", "-o", step + "/w.safetensors"},
      {"checkpoint", "import", weights, "-o", step},
      {"weights", "convert", job, weights, "-o", shard},
      {"search", job, "-o", step + "/job.textproto"},
      {"calibrate", job, "-o", step + "/here.textproto"},
      {"sim", job, "--cluster", "defaults", "--trace", run + "/latest"},
      {"view", job, "--export", step + "/page.html"},
      {"data", "build", job, "-o", step + "/tokens.npy"},
      {"launch", "--logs", step, "--", "true"},
  };
  for (const std::vector<std::string>& command : commands) {
    SCOPED_TRACE(absl::StrJoin(command, " "));
    const Outcome refused = Weir(command);
    EXPECT_EQ(refused.code, 65) << refused.err;
    EXPECT_THAT(refused.err, HasSubstr("W0926"));
    EXPECT_EQ(contents(), before);
  }
}

}  // namespace
}  // namespace weir::cli
