#include "tools/cli/cli.h"

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/cli/cli_testing.h"

namespace weir::cli {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

std::string PathFor(const std::string& name) {
  return std::string(::testing::TempDir()) + "/" + name;
}

std::string WriteFile(const std::string& name, const std::string& text) {
  std::ofstream(PathFor(name)) << text;
  return PathFor(name);
}

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// Returns a small model of images over synthetic data.
std::string SmallJob() {
  Outcome zoo =
      Weir({"zoo", "mlp", "--pixels", "16", "--hidden", "8", "--batch", "8", "--steps", "3"});
  EXPECT_EQ(zoo.code, 0) << zoo.err;
  return WriteFile("small.textproto", zoo.out);
}

TEST(CliTest, WithoutArgumentsShowsHelpAsWrongUsage) {
  Outcome run = Weir({});
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.out, HasSubstr("weir zoo gpt"));
}

TEST(CliTest, EveryVerbHasHelpWithExamples) {
  std::vector<std::vector<std::string>> verbs = {
      {"check"},      {"plan"},         {"train"},           {"eval"}, {"generate"}, {"zoo"},
      {"zoo", "gpt"}, {"zoo", "llama"}, {"zoo", "mlp"},      {"ops"},  {"sim"},      {"calibrate"},
      {"explain"},    {"trace"},        {"trace", "report"}, {"view"}};
  for (std::vector<std::string> verb : verbs) {
    verb.push_back("--help");
    Outcome run = Weir(verb);
    EXPECT_EQ(run.code, 0) << verb[0];
    EXPECT_THAT(run.out, HasSubstr("Examples:\n  weir " + verb[0])) << verb[0];
  }
  EXPECT_EQ(Weir({"--help"}).code, 0);
  EXPECT_THAT(Weir({"--help"}).out, HasSubstr("128 + N signal N ended the process"));
  EXPECT_THAT(Weir({"--version"}).out, HasSubstr("weir "));
}

TEST(CliTest, HelpSaysTheWholeCommandAndIsAVerbToo) {
  const Outcome flag = Weir({"zoo", "gpt", "--help"}), verb = Weir({"help", "zoo", "gpt"});
  EXPECT_EQ(verb.code, 0);
  EXPECT_EQ(verb.out, flag.out);
  EXPECT_THAT(flag.out, HasSubstr("Usage: weir zoo gpt [OPTIONS]"));
  EXPECT_THAT(Weir({"train", "--help"}).out, HasSubstr("Usage: weir train [OPTIONS] JOB"));
  EXPECT_EQ(Weir({"help"}).out, Weir({"--help"}).out);
  EXPECT_EQ(Weir({"help", "trian"}).code, 2);
}

TEST(CliTest, AnUnknownVerbListsThoseForPeople) {
  const Outcome verb = Weir({"fnord"});
  EXPECT_EQ(verb.code, 2);
  EXPECT_THAT(verb.err, AllOf(HasSubstr("one of check, plan, train"), Not(HasSubstr("worker"))));
}

TEST(CliTest, AnUnknownFlagOrVerbIsWrongUsageAndTheNearestIsNamed) {
  Outcome flag = Weir({"train", "x", "--stepz", "5"});
  EXPECT_EQ(flag.code, 2);
  EXPECT_THAT(flag.err, HasSubstr("unknown flag --stepz. Try: --steps"));
  flag = Weir({"zoo", "gpt", "--hiden=5"});
  EXPECT_EQ(flag.code, 2);
  EXPECT_THAT(flag.err, HasSubstr("Try: --hidden"));
  flag = Weir({"export", "x", "--init", "w.st"});
  EXPECT_THAT(flag.err, HasSubstr("unknown flag --init. Try: --weights"));
  flag = Weir({"train", "x", "--weights", "w.st"});
  EXPECT_THAT(flag.err, HasSubstr("unknown flag --weights. Try: --init"));
  Outcome verb = Weir({"trian", "x"});
  EXPECT_EQ(verb.code, 2);
  EXPECT_THAT(verb.err, HasSubstr("Try: train"));
  verb = Weir({"zoo", "gtp"});
  EXPECT_EQ(verb.code, 2);
  EXPECT_EQ(Weir({"check"}).code, 2) << "without a job";
  EXPECT_EQ(Weir({"train", "x", "--steps", "many"}).code, 2);
  EXPECT_EQ(Weir({"train", "x", "--steps", "-1"}).code, 2);
  EXPECT_EQ(Weir({"generate", "x"}).code, 2) << "without --init";
}

TEST(CliTest, ADeviceOfTheCommandLineReplacesThatOfTheJob) {
  for (const char* verb : {"plan", "sim"}) {
    const Outcome emulated = Weir({verb, SmallJob(), "--device", "cuda-emulated"});
    EXPECT_EQ(emulated.code, 0) << emulated.err;
    EXPECT_THAT(Unwrapped(emulated.out), HasSubstr("a roofline of an H100")) << verb;
  }
  const Outcome cpu =
      Weir({"sim", SmallJob(), "--set", "runtime.device=cuda-emulated", "--device", "cpu"});
  EXPECT_THAT(cpu.out, HasSubstr("the default costs"));
  const Outcome unknown = Weir({"train", SmallJob(), "--device", "gpu"});
  EXPECT_EQ(unknown.code, 65);
  EXPECT_THAT(unknown.err, HasSubstr("W0529"));
}

TEST(CliTest, SimPredictsAStepOnAClusterThatIsGiven) {
  const std::string cluster = WriteFile("cluster.textproto", R"(
    device { name: "d" peak { dtype: "f32" flops_per_second: 1e10 } bytes_per_second: 1e9 }
    host { device: "d" devices: 4 }
    within_host { latency_ns: 1000 bytes_per_second: 1e9 })");
  Outcome run = Weir({"sim", SmallJob(), "--cluster", cluster, "--mesh", "dp=2", "--trace",
                      PathFor("sim.pftrace")});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("2 devices (dp=2)"));
  EXPECT_THAT(run.out, HasSubstr("samples/s"));
  EXPECT_EQ(Weir({"trace", "report", PathFor("sim.pftrace")}).code, 0);
  EXPECT_EQ(
      nlohmann::json::parse(Weir({"sim", SmallJob(), "--cluster", cluster, "--json"}).out)["ranks"],
      1);
  Outcome few = Weir({"sim", SmallJob(), "--cluster", cluster, "--mesh", "dp=8"});
  EXPECT_EQ(few.code, 65);
  EXPECT_THAT(few.err, AllOf(HasSubstr("W0704"), HasSubstr("Try: a smaller --mesh, or the file")));
  EXPECT_NE(Weir({"plan", SmallJob(), "--cluster", cluster, "--curve"}).out,
            Weir({"plan", SmallJob(), "--curve"}).out);
  EXPECT_NE(Weir({"plan", SmallJob(), "--cluster", cluster}).out, Weir({"plan", SmallJob()}).out);
  EXPECT_EQ(Weir({"plan", SmallJob(), "--cluster", "/no/such/cluster"}).code, 66);
  EXPECT_THAT(Weir({"sim", SmallJob()}).out, HasSubstr("the default costs")) << "without a cluster";
  EXPECT_EQ(Weir({"sim", SmallJob(), "--cluster", "/no/such/cluster"}).code, 66);
  Outcome bad =
      Weir({"sim", SmallJob(), "--cluster", WriteFile("bad_cluster.textproto", "devise {}")});
  EXPECT_EQ(bad.code, 65);
  EXPECT_THAT(bad.err, HasSubstr("bad_cluster.textproto:1:"));
}

TEST(CliTest, TrainPlansForTheMachinesThatAreGivenAndTrainsToTheSameBits) {
  const std::string cluster = WriteFile("slow_hosts.textproto", R"(
    device { name: "d" peak { dtype: "f32" flops_per_second: 1e9 } bytes_per_second: 1e9 }
    host { device: "d" devices: 2 count: 2 }
    within_host { latency_ns: 1000 bytes_per_second: 1e9 }
    between_hosts { latency_ns: 100000 bytes_per_second: 1e7 })");
  const auto train = [](const std::string& weights, const std::string& costs) {
    const Outcome run = Weir({"train", SmallJob(), "--mesh", "dp=4", "--steps", "2", "--cluster",
                              costs, "--save", weights});
    EXPECT_EQ(run.code, 0) << run.err;
    return run.err;
  };
  const std::string plain = PathFor("plain.st"), planned = PathFor("planned.st");
  EXPECT_THAT(train(plain, "defaults"), Not(HasSubstr("planned with")));
  EXPECT_THAT(train(planned, cluster), HasSubstr("planned with the costs of"));
  EXPECT_EQ(ReadFile(planned), ReadFile(plain));
  EXPECT_EQ(Weir({"check", SmallJob(), "--cluster", cluster}).code, 0);
  EXPECT_EQ(Weir({"train", SmallJob(), "--cluster", "/no/such/cluster"}).code, 66);
}

TEST(CliTest, TheAxesInsideHostsAreChosenAlikeByAllVerbs) {
  const Outcome zoo = Weir({"zoo", "gpt", "--layers", "2", "--hidden", "32", "--heads", "4",
                            "--vocab", "64", "--sequence", "16", "--batch", "4"});
  const std::string job = WriteFile("gpt_on_hosts.textproto", zoo.out);
  const std::string cluster = WriteFile("hosts_of_two.textproto", R"(
    device { name: "d" peak { dtype: "f32" flops_per_second: 1e9 } bytes_per_second: 1e9 }
    host { device: "d" devices: 2 count: 2 }
    within_host { latency_ns: 1000 bytes_per_second: 1e9 }
    between_hosts { latency_ns: 100000 bytes_per_second: 1e7 })");
  const auto on_hosts = [&](const std::string& verb, std::vector<std::string> more) {
    std::vector<std::string> words = {verb, job, "--mesh", "dp=2,tp=2", "--cluster", cluster};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome run = Weir(words);
    EXPECT_EQ(run.code, 0) << verb << ": " << run.err;
    return run;
  };
  // A batch of 4 sends less than the weights.
  const char* const kept = "in the order as written; --place as-written";
  const Outcome sim = on_hosts("sim", {"--json"});
  EXPECT_THAT(sim.err, AllOf(HasSubstr("dp inside hosts, tp between them: "), HasSubstr(kept)));
  EXPECT_THAT(on_hosts("check", {}).err, HasSubstr("dp inside hosts, tp between them: "));
  EXPECT_THAT(on_hosts("plan", {}).out,
              HasSubstr("2 with 2 devices each; dp inside them, tp between"));
  EXPECT_THAT(on_hosts("sim", {"--place", "as-written"}).err, Not(HasSubstr("inside hosts")));
  EXPECT_THAT(on_hosts("sim", {"--place", "dp,tp"}).err,
              HasSubstr("tp inside hosts, dp between them (--place)"));
  const nlohmann::json plan = nlohmann::json::parse(on_hosts("plan", {"--json"}).out);
  EXPECT_EQ(plan["rank_order"], (std::vector<std::string>{"tp", "dp"}));
  EXPECT_EQ(plan["mesh"], "dp=2,tp=2");
  EXPECT_EQ(plan["prediction"]["step_seconds"], nlohmann::json::parse(sim.out)["step_seconds"]);

  EXPECT_THAT(on_hosts("plan", {}).out, Not(HasSubstr("the cluster has")));
  EXPECT_THAT(Weir({"plan", job, "--mesh", "dp=4,tp=2", "--cluster", cluster}).out,
              HasSubstr("warnings  the cluster has 4 devices, fewer than the 8 of the mesh"));
  EXPECT_THAT(on_hosts("check", {}).err, Not(HasSubstr("the cluster has")));
  const Outcome small = Weir({"check", job, "--mesh", "dp=4,tp=2", "--cluster", cluster});
  EXPECT_EQ(small.code, 0) << small.err;
  EXPECT_THAT(small.err,
              HasSubstr("WARNING: the cluster has 4 devices, fewer than the 8 of the mesh"));

  const std::string chosen = PathFor("chosen.st"), written = PathFor("written.st");
  EXPECT_THAT(on_hosts("train", {"--steps", "2", "--save", chosen}).err,
              HasSubstr("dp inside hosts"));
  const Outcome plain =
      Weir({"train", job, "--mesh", "dp=2,tp=2", "--steps", "2", "--save", written});
  EXPECT_THAT(plain.err, Not(HasSubstr("inside hosts")));
  EXPECT_EQ(ReadFile(chosen), ReadFile(written));
  for (const char* verb : {"train", "check", "plan", "sim"}) {
    const Outcome wrong = Weir({verb, job, "--mesh", "dp=2,tp=2", "--place", "dp,sp"});
    EXPECT_EQ(wrong.code, 65) << verb;
    EXPECT_THAT(wrong.err, AllOf(HasSubstr("W0106 at --place dp,sp"), HasSubstr("dp=2,tp=2"),
                                 HasSubstr("\"sp\"")));
  }
}

TEST(CliTest, AnOrderOfRanksThatTheCommandLineSetsIsRefusedIfItIsWrong) {
  const std::string job = SmallJob();
  for (const char* order : {"mesh.rank_order=sp", "mesh.rank_order=dp"}) {
    const Outcome wrong = Weir({"check", job, "--mesh", "dp=2,tp=2", "--set", order});
    EXPECT_EQ(wrong.code, 65) << order << wrong.err;
    EXPECT_THAT(wrong.err, HasSubstr("mesh.rank_order: expected each axis of the mesh dp=2,tp=2"));
  }
  const Outcome list =
      Weir({"check", job, "--mesh", "dp=2,tp=2", "--set", "mesh.rank_order=tp,dp"});
  EXPECT_THAT(list.err, AllOf(HasSubstr("a --set for each name"), HasSubstr("mesh.rank_order=dp")));
  EXPECT_EQ(Weir({"check", job, "--mesh", "dp=2,tp=2", "--set", "mesh.rank_order=tp", "--set",
                  "mesh.rank_order=dp"})
                .code,
            0);
  EXPECT_EQ(Weir({"check", job, "--mesh", "dp=2", "--set", "mesh.rank_order=dp"}).code, 0);
}

TEST(CliTest, AMistakeBeforeTheProgramOfLaunchIsSaid) {
  EXPECT_THAT(Weir({"launch", "--processes", "0", "--", "prog", "--lr", "1"}).err,
              AllOf(HasSubstr("--processes"), Not(HasSubstr("unknown flag"))));
  EXPECT_THAT(Weir({"launch", "--backend", "smoke", "--", "prog"}).err,
              AllOf(HasSubstr("--backend"), Not(HasSubstr("unknown flag"))));
  EXPECT_THAT(Weir({"launch", "--no-such", "--", "prog"}).err, HasSubstr("unknown flag --no-such"));
}

TEST(CliTest, CalibrateWritesAClusterThatSimReads) {
  const std::string job = SmallJob(), cluster = PathFor("here.textproto");
  Outcome measured = Weir({"calibrate", job, "--also", "dp=2", "--also",
                           "dp=2 training.zero_stage=3", "--steps", "2", "-o", cluster});
  EXPECT_EQ(measured.code, 0) << measured.err;
  EXPECT_THAT(measured.err, HasSubstr("measuring kernels of 2 devices"));
  Outcome run = Weir({"sim", job, "--cluster", cluster, "--mesh", "dp=2"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("on this machine, "));
  for (const char* stage : {"training.zero_stage=0", "training.zero_stage=3"}) {
    run = Weir({"sim", job, "--cluster", cluster, "--mesh", "dp=2", "--set", stage, "--json"});
    EXPECT_EQ(nlohmann::json::parse(run.out)["kernels_estimated"], 0) << stage;
  }
  run = Weir({"sim", job, "--cluster", cluster, "--mesh", "tp=2", "--json"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_GT(nlohmann::json::parse(run.out)["kernels_estimated"], 0)
      << "its shapes were not measured";
  const std::string trace = PathFor("calibrate.pftrace");
  Outcome traced =
      Weir({"calibrate", job, "--mesh", "pp=2", "--steps", "2", "-o", cluster, "--trace", trace});
  EXPECT_EQ(traced.code, 0) << traced.err;
  EXPECT_THAT(Weir({"trace", "report", trace}).out,
              AllOf(HasSubstr("2 devices, 2 stages"), HasSubstr("pipeline, 1F1B: bubble ")));
  EXPECT_EQ(Weir({"calibrate", job, "--steps", "1", "-o", "/no/such/folder/c.textproto"}).code, 66);
  EXPECT_EQ(Weir({"calibrate", job, "--also", "dp=two"}).code, 65);
  EXPECT_THAT(Weir({"calibrate", job, "--device", "cuda-emulated", "--keep"}).err,
              HasSubstr("W0964"));
  for (const std::vector<std::string>& outputs : std::vector<std::vector<std::string>>{
           {"-o", job}, {"--trace", job}, {"-o", trace, "--trace", trace}}) {
    std::vector<std::string> words{"calibrate", job, "--steps", "1"};
    words.insert(words.end(), outputs.begin(), outputs.end());
    EXPECT_THAT(Weir(words).err, HasSubstr("W0926")) << outputs.front() << " " << outputs.back();
  }
  EXPECT_EQ(Weir({"check", job}).code, 0) << "the job is as it was";
  EXPECT_THAT(Weir({"calibrate", job, "--products", "-o", cluster}).err, HasSubstr("W0942"));
  const Outcome products = Weir({"calibrate", job, "--products"});
  EXPECT_EQ(products.code, 0) << products.err;
  EXPECT_THAT(products.out, AllOf(HasSubstr("matrix products on "), HasSubstr("  automatic "),
                                  HasSubstr("  chosen")));
  EXPECT_THAT(Weir({"plan", job, "--products"}).out,
              HasSubstr("products: how a CPU computes them, and why"));

  // Each of the two files that --keep writes may have a folder of its own, which --keep makes.
  const std::string products_path = PathFor("ways/here.textproto");
  ::setenv("WEIR_PRODUCTS", products_path.c_str(), 1);
  const Outcome kept = Weir({"calibrate", job, "--products", "--keep"});
  EXPECT_EQ(kept.code, 0) << kept.err;
  EXPECT_THAT(kept.out, HasSubstr(products_path + ": "));
  ::unsetenv("WEIR_PRODUCTS");
}

// Returns the text after the name of a line: "85.2 ms" of "  step    85.2 ms, 24,045 tokens/s".
std::string LineCalled(const std::string& name, const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t begin = line.find_first_not_of(' ');
    if (begin == std::string::npos || line.compare(begin, name.size() + 1, name + " ") != 0)
      continue;
    const std::string rest = line.substr(line.find_first_not_of(' ', begin + name.size()));
    return rest.substr(0, rest.find(','));
  }
  return "";
}

TEST(CliTest, PlanAndSimPrintTheSameStep) {
  const std::string job = SmallJob(), cluster = WriteFile("same.textproto", R"(
    name: "same" device { name: "d" act_ns: 2000 peak { dtype: "f32" flops_per_second: 1e10 } bytes_per_second: 1e9 }
    host { device: "d" devices: 4 cores: 2 }
    within_host { latency_ns: 1000 bytes_per_second: 1e9 })");
  for (const char* costs : {cluster.c_str(), "defaults"}) {
    for (const char* mesh : {"dp=2", "dp=2,tp=2", "pp=2"}) {
      const std::string plan = Weir({"plan", job, "--mesh", mesh, "--cluster", costs}).out,
                        sim = Weir({"sim", job, "--mesh", mesh, "--cluster", costs}).out;
      EXPECT_EQ(LineCalled("step", plan), LineCalled("step", sim)) << plan << sim;
      EXPECT_THAT(LineCalled("step", plan), HasSubstr("s")) << plan;
    }
  }
}

TEST(CliTest, AnErrorInTheGraphHasItsLineAndSaysWhereToLook) {
  const std::string job = SmallJob();
  std::ifstream file(job);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  const size_t at = text.find("op: \"matmul\"");
  ASSERT_NE(at, std::string::npos) << text;
  const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n');
  text.replace(at, 12, "op: \"matmull\"");
  const std::string spoilt = WriteFile("spoilt.textproto", text);
  Outcome check = Weir({"check", spoilt});
  EXPECT_EQ(check.code, 65);
  EXPECT_THAT(check.err, HasSubstr(absl::StrCat("W0301 at ", spoilt, ":", line, ", function ")));
  EXPECT_THAT(check.err, ::testing::EndsWith("See: weir explain W0301\n"));
  Outcome set = Weir({"check", job, "--set", "training.micro_batches=-1"});
  EXPECT_THAT(set.err,
              HasSubstr(" at --set training.micro_batches=-1, training.micro_batches: expected"));
}

TEST(CliTest, ExplainPrintsThePageOfACodeAndListsAll) {
  Outcome page = Weir({"explain", "W0426"});
  EXPECT_EQ(page.code, 0) << page.err;
  EXPECT_THAT(page.out, AllOf(HasSubstr("W0426: "), HasSubstr("What to do.")));
  EXPECT_THAT(Weir({"explain"}).out, HasSubstr("W0426  "));
  Outcome unknown = Weir({"explain", "W0409"});
  EXPECT_EQ(unknown.code, 65);
  EXPECT_THAT(unknown.err, HasSubstr("Try: weir explain W0407"));
}

TEST(CliTest, AMissingJobIs66AndARejectedOneIs65) {
  EXPECT_EQ(Weir({"check", "/no/such/job"}).code, 66);
  Outcome broken = Weir({"check", WriteFile("broken.textproto", "trainin { steps: 1 }")});
  EXPECT_EQ(broken.code, 65);
  EXPECT_THAT(broken.err, HasSubstr("broken.textproto:1:"));
  EXPECT_THAT(broken.err, HasSubstr("Try: training"));
  EXPECT_EQ(Weir({"check", WriteFile("empty.textproto", "")}).code, 65);
  std::string job = SmallJob();
  EXPECT_EQ(Weir({"check", job, "--set", "training.stepz=1"}).code, 65);
  EXPECT_EQ(Weir({"check", job, "--mesh", "dp=x"}).code, 65);
  EXPECT_EQ(Weir({"check", job, "--set", "data.text.path=/no/such/text"}).code, 66);
  EXPECT_EQ(Weir({"eval", job, "--init", "/no/such/weights"}).code, 66);
  EXPECT_EQ(Weir({"eval", job, "--init", WriteFile("damaged.safetensors", "12345678901")}).code,
            66);
}

// Returns a language model over bytes. The job is in one folder, and its text of 5,000 bytes in
// another.
std::string TextJob(const std::string& text_path) {
  Outcome zoo = Weir({"zoo", "gpt", "--layers", "1", "--hidden", "8", "--heads", "2", "--sequence",
                      "8", "--batch", "2", "--steps", "1", "--data", text_path});
  EXPECT_EQ(zoo.code, 0) << zoo.err;
  std::filesystem::create_directories(PathFor("jobs"));
  return WriteFile("jobs/gpt.textproto", zoo.out);
}

TEST(CliTest, NoNameControlsTheTerminal) {
  const std::string name =
      "name=a\x1b]0;title\x07\xc2\x9b"
      "31mb";
  Outcome check = Weir({"check", SmallJob(), "--set", name});
  EXPECT_EQ(check.code, 0) << check.err;
  EXPECT_THAT(check.out, HasSubstr("a\\x1b]0;title\\x07\\xc2\\x9b31mb is sound"));
  Outcome train = Weir({"train", SmallJob(), "--set", name, "--steps", "1"});
  EXPECT_THAT(train.err,
              AllOf(HasSubstr("a\\x1b]0;title"), Not(HasSubstr("\x1b")), Not(HasSubstr("\x07"))));
  EXPECT_THAT(Weir({"check", "/no/such/\x1b[2J\xff"}).err,
              AllOf(HasSubstr("\\x1b[2J\\xff"), Not(HasSubstr("\x1b"))));
  EXPECT_THAT(Weir({"plan", SmallJob(), "--set", name, "--json"}).out, Not(HasSubstr("\x1b")));
}

TEST(CliTest, NoNameInATraceControlsTheTerminal) {
  const std::string trace = PathFor("names.pftrace");
  ASSERT_EQ(Weir({"train", SmallJob(), "--steps", "3", "--trace", trace}).code, 0);
  std::string bytes = ReadFile(trace);
  const std::string name = "forward", hostile = "\x1b]0;hi\x07";
  ASSERT_EQ(name.size(), hostile.size());
  ASSERT_NE(bytes.find(name), std::string::npos);
  for (size_t at = 0; (at = bytes.find(name, at)) != std::string::npos;)
    bytes.replace(at, name.size(), hostile);
  Outcome report = Weir({"trace", "report", WriteFile("hostile.pftrace", bytes)});
  EXPECT_EQ(report.code, 0) << report.err;
  EXPECT_THAT(report.out,
              AllOf(HasSubstr("\\x1b]0;hi\\x07"), Not(HasSubstr("\x1b")), Not(HasSubstr("\x07"))));
}

TEST(CliTest, AJobNamesDataNearItselfUnlessTheUserAllowsMore) {
  std::filesystem::create_directories(PathFor("texts"));
  const std::string text = WriteFile("texts/text", std::string(5000, 'a')), job = TextJob(text);
  const std::string texts = std::filesystem::canonical(PathFor("texts")).string();
  for (const char* verb : {"check", "train", "calibrate"}) {
    Outcome refused = Weir({verb, job});
    EXPECT_EQ(refused.code, 65) << verb;
    EXPECT_THAT(refused.err, AllOf(HasSubstr("W0813"), HasSubstr("data.text.path"),
                                   HasSubstr("--allow-path " + texts)));
  }
  EXPECT_EQ(Weir({"check", job, "--allow-path", PathFor("texts")}).code, 0);
  EXPECT_EQ(Weir({"check", job, "--set", "data.text.path=" + text}).code, 0)
      << "the user's own word";
  EXPECT_EQ(Weir({"check", job, "--set", "training.steps=2"}).code, 65);
  EXPECT_EQ(Weir({"check", job, "--no-data"}).code, 0) << "opens nothing";
  EXPECT_EQ(Weir({"plan", job}).code, 0) << "opens nothing";
  EXPECT_EQ(Weir({"plan", job, "--allow-path", "/"}).code, 2);
}

TEST(CliTest, TheZooSaysWhichDataOtherVerbsDoNotReadOrFind) {
  std::filesystem::create_directories(PathFor("books"));
  const std::string text = WriteFile("books/book", std::string(5000, 'a'));
  Outcome elsewhere = Weir({"zoo", "gpt", "--data", text});
  EXPECT_EQ(elsewhere.code, 0);
  EXPECT_THAT(elsewhere.err,
              AllOf(HasSubstr("not in this folder"), HasSubstr("--allow-path"),
                    HasSubstr(std::filesystem::canonical(PathFor("books")).string())));
  Outcome nowhere = Weir({"zoo", "gpt", "--data", "no_such_book.txt"});
  EXPECT_EQ(nowhere.code, 0);
  EXPECT_THAT(nowhere.err, AllOf(HasSubstr("WARNING"), HasSubstr("no_such_book.txt"),
                                 HasSubstr("no such file")));
  EXPECT_EQ(Weir({"zoo", "gpt"}).err, "");
}

TEST(CliTest, CheckAndPlanDescribeAJobOnAnyMesh) {
  std::string job = SmallJob();
  for (const char* mesh : {"", "dp=2", "dp=2,tp=2", "pp=2"}) {
    Outcome check = Weir({"check", job, "--mesh", mesh});
    EXPECT_EQ(check.code, 0) << check.err;
    EXPECT_THAT(check.out, HasSubstr("mlp is sound"));
  }
  Outcome plan = Weir({"plan", job, "--mesh", "tp=2", "--timings"});
  EXPECT_EQ(plan.code, 0) << plan.err;
  EXPECT_THAT(plan.out, ::testing::StartsWith("fit "));
  EXPECT_THAT(plan.out, ::testing::Not(HasSubstr("\nlayouts")));
  const std::string all = Weir({"plan", job, "--mesh", "tp=2", "--all"}).out;
  for (const char* section : {"\nlayouts", "\nboxings: ", "\nstages", "\ntimes as planned",
                              "\nactors", "\nmemory over the step"}) {
    EXPECT_THAT(all, HasSubstr(section));
  }
  EXPECT_THAT(Weir({"plan", job, "--mesh", "tp=2", "--layouts"}).out,
              HasSubstr("\nlayouts: every tensor"));
  EXPECT_EQ(Weir({"plan", job, "--layouts", "no_such_function"}).code, 65);
  EXPECT_THAT(plan.out, HasSubstr("tp=2"));
  EXPECT_THAT(plan.out, HasSubstr("propagate-layouts"));
  Outcome rank = Weir({"plan", job, "--mesh", "tp=2", "--rank", "1"});
  EXPECT_THAT(rank.out, HasSubstr("rank: 1"));
  EXPECT_EQ(Weir({"plan", job, "--rank", "1"}).code, 65);
  EXPECT_EQ(Weir({"plan", job, "--mode", "trane"}).code, 65);
}

TEST(CliTest, PlanPrintsFiguresOfEveryRankAsJson) {
  Outcome plan = Weir({"plan", SmallJob(), "--mesh", "dp=2,tp=2", "--json"});
  ASSERT_EQ(plan.code, 0) << plan.err;
  auto json = nlohmann::json::parse(plan.out);
  ASSERT_EQ(json["ranks"].size(), 4u);
  EXPECT_EQ(json["mesh"], "dp=2,tp=2");
  EXPECT_GT(json["ranks"][3]["arena_bytes"], 0);
  EXPECT_FALSE(json["ranks"][3]["states"].empty());
  EXPECT_EQ(json["ranks_left_out"], 0);
}

TEST(CliTest, ThePlanOfALargeMeshIsJsonOfTheRanksThatStandForAll) {
  const Outcome large = Weir({"plan", SmallJob(), "--mesh", "dp=8,tp=16", "--json"});
  EXPECT_THAT(large.err, HasSubstr("of 128 ranks, which stand for the others; --all-ranks"));
  ASSERT_EQ(large.code, 0) << large.err;
  const auto json = nlohmann::json::parse(large.out);
  EXPECT_EQ(json["ranks"].size() + json["ranks_left_out"].get<size_t>(), 128u);
  EXPECT_LT(json["ranks"].size(), 8u);
}

TEST(CliTest, ViewShowsThePlanOfAJobAndRefusesWhatIsNeitherJobNorTrace) {
  const std::string page = PathFor("plan.html");
  const Outcome view = Weir({"view", SmallJob(), "--mesh", "dp=2", "--set", "training.zero_stage=1",
                             "--cluster", "defaults", "--export", page});
  EXPECT_EQ(view.code, 0) << view.err;
  EXPECT_THAT(view.out, HasSubstr("page written to "));
  EXPECT_THAT(ReadFile(page), HasSubstr("<script id=\"run\""));
  EXPECT_EQ(Weir({"view", SmallJob(), "--mesh", "dp=3x", "--export", page}).code, 65);
  const std::string plan = WriteFile("plan.json", Weir({"plan", SmallJob(), "--json"}).out);
  const Outcome shown = Weir({"view", plan, "--export", page});
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_THAT(ReadFile(page), HasSubstr("<script id=\"run\""));
  const Outcome meshed = Weir({"view", plan, "--mesh", "dp=2", "--export", page});
  EXPECT_EQ(meshed.code, 2);
  EXPECT_THAT(meshed.err, HasSubstr("--mesh: is for a job, and FILE is a plan as JSON"));
  const Outcome json = Weir({"view", WriteFile("other.json", "{\"plan_id\": 7}")});
  EXPECT_EQ(json.code, 66);
  EXPECT_THAT(json.err, AllOf(HasSubstr("W0538"), HasSubstr("plan_id is a number"),
                              HasSubstr("weir view JOB")));
  const std::string trace = PathFor("view.pftrace");
  EXPECT_EQ(Weir({"sim", SmallJob(), "--trace", trace}).code, 0);
  EXPECT_EQ(Weir({"view", trace, "--export", page}).code, 0);
  const Outcome flags = Weir({"view", trace, "--mesh", "dp=2", "--export", page});
  EXPECT_EQ(flags.code, 2);
  EXPECT_THAT(flags.err, HasSubstr("--mesh: is for a job, and FILE is a trace"));
  const Outcome unnamed = Weir({"view", trace, "--export", ""});
  EXPECT_EQ(unnamed.code, 2);
  EXPECT_THAT(unnamed.err, HasSubstr("--export: needs the name of the page to write"));
  EXPECT_EQ(Weir({"view", WriteFile("no.pftrace", std::string("\x01\x02", 2))}).code, 66)
      << "a file that is no trace, without --export";
  const Outcome empty = Weir({"view", WriteFile("empty.pftrace", "")});
  EXPECT_EQ(empty.code, 66);
  EXPECT_THAT(empty.err, AllOf(HasSubstr("W0531"), HasSubstr("an empty file")));
  EXPECT_EQ(Weir({"view", "--attach", "1", "--mesh", "dp=2"}).code, 2);
  EXPECT_EQ(Weir({"view", "/no/such/job"}).code, 66);
}

TEST(CliTest, SearchWritesAJobThatCheckTakes) {
  // No split pays for a model of this size, and a mesh whose axes split nothing is refused.
  const std::string job =
      WriteFile("tiny.textproto", Weir({"zoo", "gpt", "--layers", "2", "--hidden", "16", "--heads",
                                        "2", "--vocab", "32", "--sequence", "8", "--batch", "4"})
                                      .out);
  for (const char* mesh : {"dp=2,tp=2", "dp=2"}) {
    const std::string found = PathFor("found.textproto");
    const Outcome search = Weir({"search", job, "--mesh", mesh, "-o", found});
    EXPECT_EQ(search.code, 0) << search.err;
    const Outcome check = Weir({"check", found});
    EXPECT_EQ(check.code, 0) << check.err;
  }
  const Outcome small = Weir({"search", job, "--mesh", "dp=2", "--memory", "1K"});
  EXPECT_THAT(small.err, HasSubstr("W0991 at memory of a device, --memory: "));
}

// One command line gives one plan in all verbs, and the lines that plan prints give it, too.
TEST(CliTest, RulesThatASearchFindsAreAlikeInAllVerbsAndCanBePasted) {
  const std::string job = SmallJob();
  const std::vector<std::string> flags = {"--mesh", "dp=2,tp=2", "--rules", "auto"};
  const auto with_flags = [&](std::vector<std::string> args) {
    args.insert(args.end(), flags.begin(), flags.end());
    return Weir(args);
  };
  const Outcome plan = with_flags({"plan", job});
  ASSERT_EQ(plan.code, 0) << plan.err;
  const size_t begin = plan.out.find("\nrules found: ");
  ASSERT_NE(begin, std::string::npos) << plan.out;
  const std::string rules = plan.out.substr(plan.out.find("rule { ", begin));
  for (const char* verb : {"sim", "check", "train"}) {
    const Outcome run = with_flags({verb, job});
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_THAT(run.err, HasSubstr("rules found: ")) << verb;
  }
  const Outcome as_json = with_flags({"plan", job, "--json"});
  ASSERT_EQ(as_json.code, 0) << as_json.err;
  const nlohmann::json found = nlohmann::json::parse(as_json.out);
  EXPECT_EQ(found["rules_found"]["job_text"], rules);
  std::string text = ReadFile(job);
  for (size_t rule = text.find("rule {"); rule != std::string::npos; rule = text.find("rule {"))
    text.erase(rule, text.find('\n', rule) + 1 - rule);
  const std::string pasted = WriteFile("pasted.textproto", text + rules);
  const Outcome again = Weir({"plan", pasted, "--mesh", "dp=2,tp=2", "--json"});
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(nlohmann::json::parse(again.out)["plan_id"], found["plan_id"]);
}

TEST(CliTest, OpsListsAndExplainsOps) {
  Outcome list = Weir({"ops"});
  EXPECT_EQ(list.code, 0);
  EXPECT_THAT(list.out, HasSubstr("matmul "));
  EXPECT_THAT(list.out, Not(HasSubstr("matmul_grad_w")));
  EXPECT_THAT(Weir({"ops", "--all"}).out, HasSubstr("matmul_grad_w"));
  EXPECT_THAT(Weir({"ops", "attention"}).out, HasSubstr("causal"));
  const nlohmann::json every = nlohmann::json::parse(Weir({"ops", "--json"}).out);
  EXPECT_EQ(every.size(), std::count(list.out.begin(), list.out.end(), '\n'));
  const nlohmann::json attention = nlohmann::json::parse(Weir({"ops", "attention", "--json"}).out);
  EXPECT_THAT(every, ::testing::Contains(attention));
  EXPECT_EQ(attention["inputs"][0]["name"], "q");
  for (const nlohmann::json& attr : attention["attributes"]) {
    if (attr["name"] == "causal") {
      EXPECT_EQ(attr["default"], true);
    }
  }
  EXPECT_THAT(Weir({"ops", "linear"}).err, HasSubstr("Try: matmul."));
  Outcome unknown = Weir({"ops", "atention"});
  EXPECT_EQ(unknown.code, 65);
  EXPECT_THAT(unknown.err, HasSubstr("Try: attention"));
}

TEST(CliTest, TrainsSavesAndTellsTheLoss) {
  std::string job = SmallJob(), weights = PathFor("cli.safetensors");
  Outcome train = Weir({"train", job, "--mesh", "dp=2", "--save", weights, "--metrics",
                        PathFor("cli.jsonl"), "--threads", "1"});
  ASSERT_EQ(train.code, 0) << train.err;
  EXPECT_THAT(train.out,
              MatchesRegex("3 steps, loss [0-9.]+; 3 steps took .+s, mean .+ samples/s\n"));
  EXPECT_THAT(train.err, HasSubstr("step 3/3"));
  EXPECT_EQ(Weir({"train", job, "--init", weights, "--steps", "1"}).code, 0);
  const auto loss_of = [&](const char* seed) {
    const std::string out = Weir({"train", job, "--seed", seed, "--steps", "1"}).out;
    return out.substr(0, out.find(';'));
  };
  EXPECT_EQ(loss_of("9"), loss_of("9"));
  EXPECT_NE(loss_of("9"), loss_of("8"));
  EXPECT_EQ(Weir({"train", job, "--save", "/no/such/folder/w.safetensors"}).code, 66);
  EXPECT_EQ(Weir({"train", job, "--checkpoint-every", "1"}).code, 65);
  EXPECT_EQ(Weir({"generate", job, "--init", weights}).code, 65) << "images are not text";
  const std::string prompts = PathFor("prompts.jsonl");
  std::ofstream(prompts) << "[1, 2]\n1 2\n";
  const Outcome ids = Weir({"generate", job, "--init", weights, "--prompt-ids", prompts});
  EXPECT_EQ(ids.code, 65);
  EXPECT_THAT(ids.err, HasSubstr("W0771"));
  EXPECT_THAT(ids.err, HasSubstr("line 2"));
  EXPECT_EQ(Weir({"eval", job, "--init", weights}).code, 65) << "synthetic data holds nothing out";
}

TEST(CliTest, AModelWithoutALossIsCheckedPlannedAndRunButNotTrained) {
  const std::string job = WriteFile("results.textproto", R"pb(
    name: "results"
    graph {
      dim { name: "samples" size: 4 }
      dim { name: "wide" size: 8 }
      function {
        name: "main"
        input { name: "x" type: "f32[samples, wide]" }
        node { name: "y" op: "relu" input: "x" }
        output: "y"
      }
      main: "main"
      without_loss: true
    }
    rule { dim: "samples" axis: "dp" }
    data { synthetic {} }
  )pb");
  const Outcome checked = Weir({"check", job, "--mesh", "dp=2"});
  EXPECT_EQ(checked.code, 0) << checked.err;
  EXPECT_THAT(checked.out, HasSubstr("has no loss: 0 weights, 1 output, on 2 devices"));
  for (const char* verb : {"plan", "dims", "search"}) {
    const Outcome shown = Weir({verb, job, "--mesh", "dp=2"});
    EXPECT_EQ(shown.code, 0) << verb << ": " << shown.err;
  }
  const std::string folder = PathFor("results");
  const Outcome run = Weir({"eval", job, "--mesh", "dp=2", "--outputs", folder});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("ran 4 samples in 1 step"));
  EXPECT_THAT(run.out, HasSubstr("y.npy f32[4, 8]"));
  const std::string costs = PathFor("costs_of_results.textproto");
  const Outcome measured = Weir({"calibrate", job, "--mesh", "dp=2", "--steps", "1", "-o", costs});
  EXPECT_EQ(measured.code, 0) << measured.err;
  const Outcome planned = Weir({"plan", job, "--mesh", "dp=2", "--cluster", costs});
  EXPECT_EQ(planned.code, 0) << planned.err;
  EXPECT_THAT(planned.out, HasSubstr("by the planned times and"));
  const Outcome trained = Weir({"train", job});
  EXPECT_EQ(trained.code, 65);
  EXPECT_THAT(trained.err, HasSubstr("W0616"));
  EXPECT_THAT(Weir({"eval", job}).err, HasSubstr("W0622"));
}

std::string NpyFile(const std::string& name, const std::string& descr, const std::string& shape,
                    const std::string& data) {
  const std::string dict =
      "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }\n";
  std::string bytes = "\x93NUMPY";
  bytes += {1, 0, static_cast<char>(dict.size()), 0};
  std::ofstream(PathFor(name), std::ios::binary) << bytes << dict << data;
  return PathFor(name);
}

TEST(CliTest, DataShowSaysWhatAFileIs) {
  const Outcome tokens = Weir({"data", "show", NpyFile("ids.npy", "<u2", "(2,)", "ab\xff\xff")});
  EXPECT_THAT(tokens.out, AllOf(HasSubstr("u16[2]"), HasSubstr("values 25185 to 65535"),
                                HasSubstr("one long text: data { tokens { path: ")));
  const Outcome labels = Weir({"data", "show", NpyFile("labels.npy", "|i1", "(2,)", "\1\x9c")});
  EXPECT_THAT(labels.out, AllOf(HasSubstr("values -100 to 1"), Not(HasSubstr("tokens {"))));
  std::ofstream(PathFor("nothing"));
  EXPECT_THAT(Weir({"data", "show", PathFor("nothing")}).err, HasSubstr("an empty file"));
  const Outcome rows = Weir({"data", "show", NpyFile("rows.npy", "|i1", "(2, 2)", "\1\2\x9c\3")});
  EXPECT_THAT(rows.out, AllOf(HasSubstr("i8[2, 2]"), HasSubstr("values -100 to 3, first 1 2"),
                              HasSubstr("array { name: \"rows\"")));
  std::ofstream(PathFor("raw")) << std::string("ab\0\0", 4);
  EXPECT_THAT(Weir({"data", "show", PathFor("raw")}).err, HasSubstr("W0796"));
  EXPECT_THAT(Weir({"data", "show", PathFor("raw"), "--type", "u16"}).out, HasSubstr("type: U16"));
  std::ofstream(PathFor("book")) << "a line\nanother";
  EXPECT_THAT(Weir({"data", "show", PathFor("book")}).out,
              AllOf(HasSubstr("text of 14 bytes"), HasSubstr("\"a line\"")));
  EXPECT_EQ(Weir({"data", "show", "/no/such/file"}).code, 66);
}

TEST(CliTest, DataBuildNeedsPython) {
  const std::string path = ::getenv("PATH") == nullptr ? "" : ::getenv("PATH");
  ::setenv("PATH", "/no/such/folder", 1);
  const Outcome build = Weir({"data", "build", PathFor("book"), "-o", PathFor("book.npy")});
  ::setenv("PATH", path.c_str(), 1);
  EXPECT_EQ(build.code, 66);
  EXPECT_THAT(build.err, AllOf(HasSubstr("W0796"), HasSubstr("python3")));
}

TEST(CliTest, WeightsDoNotReplaceAMap) {
  const std::string job = SmallJob(), weights = PathFor("mapped.safetensors");
  ASSERT_EQ(Weir({"train", job, "--steps", "1", "--save", weights}).code, 0);
  const std::string map = PathFor("some.weights.textproto");
  EXPECT_THAT(Weir({"train", job, "--steps", "1", "--save", map}).err, HasSubstr("W0840"));
  EXPECT_THAT(Weir({"weights", "convert", job, weights, "-o", map}).err, HasSubstr("W0840"));
}

TEST(CliTest, AnImportRefusesADimensionThatIsGivenTwice) {
  const Outcome twice = Weir({"import", "model.onnx", "--dim", "batch=8", "--dim", "batch=4"});
  EXPECT_EQ(twice.code, 65);
  EXPECT_THAT(twice.err, HasSubstr("W0834 at --dim batch: expected each dimension once; found the "
                                   "sizes 8 and 4"));
  const Outcome once = Weir({"import", "/no/such/model.onnx", "--dim", "batch=8"});
  EXPECT_THAT(once.err, Not(HasSubstr("W0834"))) << "the missing file is the error";
}

TEST(CliTest, ATraceIsWrittenAndReported) {
  std::string trace = PathFor("cli.pftrace");
  Outcome train = Weir({"train", SmallJob(), "--mesh", "pp=2", "--trace", trace, "--threads", "1"});
  ASSERT_EQ(train.code, 0) << train.err;
  Outcome report = Weir({"trace", "report", trace});
  EXPECT_EQ(report.code, 0) << report.err;
  EXPECT_THAT(report.out, HasSubstr("busy"));
  EXPECT_THAT(report.out, HasSubstr("\ntransfers: "));
  EXPECT_THAT(report.out, HasSubstr("stage 0 -> 1; why: the next part of the pipeline"));
  EXPECT_EQ(Weir({"trace", "report", "/no/such/trace"}).code, 66);
  EXPECT_EQ(Weir({"trace", "report", WriteFile("damaged.pftrace", "not a trace")}).code, 66);
  EXPECT_EQ(Weir({"train", SmallJob(), "--trace", "/no/such/folder/t.pftrace"}).code, 66);
}

}  // namespace
}  // namespace weir::cli
