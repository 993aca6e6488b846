// Asks the server of `weir view` as browsers and strangers do.
#include "tools/view/view_server.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "httplib.h"
#include "tools/view/view_page.h"

namespace weir::view {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kBundle[] = "the bytes of a run";

class ViewServerTest : public ::testing::Test {
 protected:
  ViewServerTest() { Serve(ViewServer::Start(kBundle, 0)); }
  void Serve(absl::StatusOr<std::unique_ptr<ViewServer>> server) {
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    const std::string rest(absl::StripPrefix(server_->address(), "http://"));
    host_ = rest.substr(0, rest.find('/'));
    path_ = rest.substr(rest.find('/'));
  }
  int port() const { return std::stoi(host_.substr(host_.find(':') + 1)); }

  // Returns the status, and the body in *body.
  int Get(const std::string& path, const std::string& host, std::string* body = nullptr) {
    httplib::Client client(absl::StrCat("http://", host_));
    const httplib::Result result = client.Get(path, httplib::Headers{{"Host", host}});
    if (!result) return 0;
    if (body != nullptr) *body = result->body;
    return result->status;
  }

  std::unique_ptr<ViewServer> server_;
  std::string host_, path_;
};

TEST_F(ViewServerTest, WhoKnowsTheAddressGetsThePageAndTheRun) {
  std::string body;
  EXPECT_EQ(Get(path_, host_, &body), 200);
  EXPECT_EQ(body, ServedPage(Shows::kRecorded));
  EXPECT_EQ(Get(path_ + "run", host_, &body), 200);
  EXPECT_EQ(body, kBundle);
}

TEST_F(ViewServerTest, NobodyElseGetsAnything) {
  std::string body;
  EXPECT_EQ(Get("/", host_), 404);
  EXPECT_EQ(Get("/run", host_), 404);
  EXPECT_EQ(Get("/0123456789abcdef0123456789abcdef/run", host_), 404);
  EXPECT_EQ(Get(path_ + "../../../etc/passwd", host_), 404);
  // A page of another site that makes the browser ask under a name of the site's own.
  EXPECT_EQ(Get(path_ + "run", "site.example", &body), 404);
  EXPECT_THAT(body, Not(HasSubstr(kBundle)));
}

TEST_F(ViewServerTest, TheTokenOfEachServerIsItsOwn) {
  const absl::StatusOr<std::unique_ptr<ViewServer>> other = ViewServer::Start(kBundle, 0);
  ASSERT_TRUE(other.ok()) << other.status();
  const std::string& address = (*other)->address();
  EXPECT_NE(address.substr(address.find('/', sizeof("http://"))), path_);
}

TEST_F(ViewServerTest, APortThatIsTakenIsAnError) {
  EXPECT_THAT(ViewServer::Start(kBundle, port()).status().message(),
              HasSubstr(absl::StrCat("W0890 at --port ", port())));
}

TEST_F(ViewServerTest, ARunIsServedBeforeItsAnalysis) {
  const auto run = std::make_shared<GrowingRun>();
  Serve(ViewServer::Start(run, 0));
  std::string body;
  EXPECT_EQ(Get(path_ + "progress", host_, &body), 200);
  EXPECT_EQ(body, R"({"ready":false,"doing":"reads the trace"})");
  EXPECT_EQ(Get(path_ + "analysis", host_), 503);
  // Who asks for the run waits for it.
  std::thread giver([&run] { run->GiveRun(kBundle); });
  EXPECT_EQ(Get(path_ + "run", host_, &body), 200);
  giver.join();
  EXPECT_EQ(body, kBundle);
  run->Tell("replays the run");
  EXPECT_EQ(Get(path_ + "progress", host_, &body), 200);
  EXPECT_EQ(body, R"({"ready":false,"doing":"replays the run"})");
  EXPECT_FALSE(run->is_over());
  run->GiveAnalysis("an analysis");
  EXPECT_TRUE(run->WaitUntilOver(0));
  EXPECT_EQ(Get(path_ + "analysis", host_, &body), 200);
  EXPECT_EQ(body, "an analysis");
  EXPECT_EQ(Get(path_ + "analysis", "site.example"), 404);
  EXPECT_EQ(Get(path_ + "progress", "site.example"), 404);
}

TEST_F(ViewServerTest, ARunThatCannotBeReadIsTold) {
  const auto run = std::make_shared<GrowingRun>();
  Serve(ViewServer::Start(run, 0));
  run->Fail(absl::DataLossError("no trace"));
  EXPECT_EQ(Get(path_ + "run", host_), 503);
  std::string body;
  EXPECT_EQ(Get(path_ + "progress", host_, &body), 200);
  EXPECT_THAT(body, HasSubstr(R"("failed":"no trace")"));
  EXPECT_TRUE(run->is_over());
}

TEST_F(ViewServerTest, AServerThatEndsKeepsNobodyWaiting) {
  const auto run = std::make_shared<GrowingRun>();
  Serve(ViewServer::Start(run, 0));
  std::thread asks([this] { Get(path_ + "run", host_); });
  server_.reset();  // would not return if the question held it up
  asks.join();
}

TEST(ViewPageTest, AllowsItsOwnScriptAloneAndLoadsNothing) {
  const absl::StatusOr<std::string> page = WholePage(kBundle);
  ASSERT_TRUE(page.ok());
  EXPECT_THAT(*page, HasSubstr("default-src 'none'; script-src 'sha256-"));
  EXPECT_THAT(*page, HasSubstr("connect-src 'none'"));
  EXPECT_THAT(*page, Not(HasSubstr("src=\"")));
  EXPECT_THAT(*page, Not(HasSubstr("href=\"http")));
}

}  // namespace
}  // namespace weir::view
