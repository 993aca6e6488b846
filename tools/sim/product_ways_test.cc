#include "tools/sim/product_ways.h"

#include <stdlib.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/compile.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/temporary_folder_testing.h"
#include "tools/sim/tiny_gpt_testing.h"

namespace weir::sim {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

proto::MeasuredProducts::Row RowOf(int64_t m, const std::vector<double>& automatic,
                                   const std::vector<double>& panels) {
  proto::MeasuredProducts::Row row;
  const auto add = [&row](const char* way, const std::vector<double>& low_median_high) {
    proto::MeasuredProducts::Time* time = row.add_time();
    time->set_way(way);
    time->set_low(low_median_high[0]);
    time->set_ns(low_median_high[1]);
    time->set_high(low_median_high[2]);
  };
  add("automatic", automatic);
  add("panels", panels);
  proto::ProductClass of;
  of.set_operands("f32");
  of.set_m(m);
  of.set_n(8);
  of.set_k(8);
  *row.mutable_choice() = ChoiceOf(of, row.time());
  return row;
}

TEST(ProductWaysTest, AWayIsChosenIfItIsClearlyFaster) {
  const auto way = [](const std::vector<double>& automatic, const std::vector<double>& panels) {
    return RowOf(1, automatic, panels).choice().way();
  };
  EXPECT_EQ(way({99, 100, 101}, {89, 90, 91}), "panels");
  EXPECT_EQ(way({99, 100, 101}, {97, 98, 98.5}), "automatic") << "by less than 3 %";
  EXPECT_EQ(way({80, 100, 101}, {89, 90, 91}), "automatic") << "within what times scatter";
  EXPECT_EQ(way({89, 90, 91}, {99, 100, 101}), "automatic");
  EXPECT_NEAR(RowOf(1, {99, 100, 101}, {49, 50, 51}).choice().gain(), 2, 1e-9);
}

// Each test measures a tiny job, and keeps nothing outside its own folder.
class KeptProductsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ::unsetenv("WEIR_PRODUCTS");
    ::setenv("WEIR_CLUSTER", home_.PathFor("here.textproto").c_str(), 1);
    absl::StatusOr<proto::Job> job = TinyGptJob();
    ASSERT_TRUE(job.ok()) << job.status();
    job_ = *std::move(job);
    absl::StatusOr<proto::MeasuredProducts> measured = MeasureProducts({job_}, nullptr);
    ASSERT_TRUE(measured.ok()) << measured.status();
    measured_ = *std::move(measured);
  }

  std::string Settle(proto::Job* job) {
    const absl::StatusOr<std::string> line = SettleProducts(job);
    EXPECT_TRUE(line.ok()) << line.status();
    return line.value_or("");
  }

  const TemporaryFolder home_;
  proto::Job job_;
  proto::MeasuredProducts measured_;
};

TEST_F(KeptProductsTest, AJobTakesWhatThisMachineHasMeasured) {
  ASSERT_GT(measured_.row_size(), 0);
  EXPECT_THAT(ProductsText(measured_), HasSubstr("automatic"));
  EXPECT_EQ(Settle(&job_), "") << "nothing is kept";
  measured_.mutable_row(0)->mutable_choice()->set_way("plain");
  const std::string path = KeptProductsPath();
  EXPECT_THAT(path, HasSubstr(home_.path() + "/products-"));
  ASSERT_EQ(KeepProducts(measured_, path), absl::OkStatus());

  proto::Job job = job_;
  EXPECT_THAT(Settle(&job), HasSubstr(absl::StrCat(" of ", measured_.row_size(), " measured")));
  ASSERT_EQ(job.runtime().product_size(), measured_.row_size());
  EXPECT_EQ(job.runtime().product(0).way(), "plain");
  EXPECT_EQ(Settle(&job), "") << "the job names ways itself";
  const auto plan = compiler::CompileJob(job, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const absl::StatusOr<std::string> section = ProductsSection(**plan);
  ASSERT_TRUE(section.ok()) << section.status();
  EXPECT_THAT(*section, HasSubstr("    plain: "));

  proto::Job on_gpu = job_;
  on_gpu.mutable_runtime()->set_device("cuda-emulated");
  EXPECT_EQ(Settle(&on_gpu), "");
  EXPECT_EQ(on_gpu.runtime().product_size(), 0);
}

TEST_F(KeptProductsTest, AFileKeepsTheClassesOfEarlierJobs) {
  const std::string path = KeptProductsPath();
  proto::MeasuredProducts first = measured_, second = measured_;
  first.clear_row();
  second.clear_row();
  *first.add_row() = RowOf(1, {99, 100, 101}, {49, 50, 51});
  *first.add_row() = RowOf(2, {99, 100, 101}, {49, 50, 51});
  *second.add_row() = RowOf(2, {99, 100, 101}, {24, 25, 26});
  ASSERT_EQ(KeepProducts(first, path), absl::OkStatus());
  ASSERT_EQ(KeepProducts(second, path), absl::OkStatus());
  absl::StatusOr<proto::MeasuredProducts> kept = ReadProducts(path);
  ASSERT_TRUE(kept.ok()) << kept.status();
  ASSERT_EQ(kept->row_size(), 2);
  EXPECT_NEAR(kept->row(0).choice().gain(), 4, 1e-9) << "the later measurement of the class counts";
  EXPECT_EQ(kept->row(1).choice().of().m(), 1);

  kept->set_kernels("oneDNN 1.0");
  ASSERT_EQ(KeepProducts(*kept, path), absl::OkStatus());
  EXPECT_THAT(Settle(&job_), HasSubstr("do not count: they are of "));
  EXPECT_EQ(job_.runtime().product_size(), 0);
  ASSERT_EQ(KeepProducts(second, path), absl::OkStatus());
  EXPECT_EQ(ReadProducts(path)->row_size(), 1) << "times of other kernels are gone";

  ::setenv("WEIR_PRODUCTS", home_.Write("other.textproto", "device {}").c_str(), 1);
  EXPECT_THAT(SettleProducts(&job_).status().message(), HasSubstr("W0845"));
  ::setenv("WEIR_PRODUCTS", "/no/such/folder/p.textproto", 1);
  EXPECT_THAT(KeepProducts(second, KeptProductsPath()).message(),
              AllOf(HasSubstr("W0845"), HasSubstr("No such file or directory")));
  ::setenv("WEIR_PRODUCTS", home_.Write("empty.textproto", "").c_str(), 1);
  EXPECT_THAT(Settle(&job_), HasSubstr("they are of no machine that the file names, and"));
  ::unsetenv("WEIR_PRODUCTS");
}

}  // namespace
}  // namespace weir::sim
