#include "tools/view/view_server.h"

#include <openssl/rand.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "httplib.h"
#include "nlohmann/json.hpp"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "tools/live/top_text.h"
#include "tools/view/view_page.h"

namespace weir::view {
namespace {

constexpr char kHost[] = "127.0.0.1";
constexpr int kThreads = 16;  // browsers keep some connections open that ask nothing
constexpr size_t kPayloadBytesMax = 4096;
constexpr int kReadSeconds = 2;
constexpr int kKeepAliveSeconds = 2;
constexpr size_t kTokenBytes = 16;
constexpr int64_t kHistoryBytesMax = 4 << 20;  // of one answer
constexpr int64_t kNsPerMs = 1'000'000;
constexpr int64_t kLookMs = 100;
constexpr int kUnavailable = 503;

std::string NewToken() {
  unsigned char random[kTokenBytes];
  if (::RAND_bytes(random, sizeof(random)) != 1) return "";
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(random), sizeof(random)));
}

absl::StatusOr<std::string> LiveText(const live::LiveReader& reader, int64_t from) {
  // A run writes its end before its process ends, so the process is looked at first.
  const bool is_alive = reader.IsAlive();
  WEIR_ASSIGN_OR_RETURN(const std::string state, reader.StateText());
  const std::string history = reader.History(from, kHistoryBytesMax);
  nlohmann::ordered_json answer = {{"state", live::ParseState(state)},
                                   {"is_alive", is_alive},
                                   {"next", from + static_cast<int64_t>(history.size())},
                                   {"history", history}};
  return answer.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

absl::StatusOr<std::string> MetricsText(const live::LiveReader& reader) {
  WEIR_ASSIGN_OR_RETURN(const live::SeenRun run, reader.See());
  return live::PrometheusText(run, RealTimeNs() / kNsPerMs);
}

}  // namespace

class ViewServer::Connections {
 public:
  Connections(std::string page, std::string token)
      : page_(std::move(page)), token_(std::move(token)) {
    // Nobody has anything to send.
    server_.set_payload_max_length(kPayloadBytesMax);
    server_.set_read_timeout(kReadSeconds, 0);
    server_.set_keep_alive_timeout(kKeepAliveSeconds);
    server_.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
    // By default the library lets a second server listen on the same port.
    server_.set_socket_options([](socket_t socket) {
      const int yes = 1;
      (void)::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    });
    server_.set_default_headers({{"Cache-Control", "no-store"},
                                 {"X-Content-Type-Options", "nosniff"},
                                 {"Referrer-Policy", "no-referrer"},
                                 {"Cross-Origin-Resource-Policy", "same-origin"}});
    server_.set_pre_routing_handler(
        [this](const httplib::Request& request, httplib::Response& response) {
          if (IsForUs(request)) return httplib::Server::HandlerResponse::Unhandled;
          response.status = 404;
          return httplib::Server::HandlerResponse::Handled;
        });
    server_.Get(absl::StrCat("/", token_, "/"),
                [this](const httplib::Request&, httplib::Response& response) {
                  response.set_content(page_, "text/html; charset=utf-8");
                });
  }
  const std::string& token() const { return token_; }
  ~Connections() {
    ending_ = true;
    server_.stop();
    if (thread_.joinable()) thread_.join();
  }

  // Call one of these before Listen.
  void ServeRun(std::shared_ptr<const GrowingRun> run) {
    run_ = std::move(run);
    server_.Get(absl::StrCat("/", token_, "/run"),
                [this](const httplib::Request&, httplib::Response& response) {
                  const std::string* bundle = nullptr;
                  while (bundle == nullptr && run_->status().ok() && !ending_)
                    bundle = run_->WaitForRun(kLookMs);
                  AnswerBytes(bundle, &response);
                });
    server_.Get(absl::StrCat("/", token_, "/analysis"),
                [this](const httplib::Request&, httplib::Response& response) {
                  AnswerBytes(run_->analysis(), &response);
                });
    server_.Get(absl::StrCat("/", token_, "/progress"),
                [this](const httplib::Request&, httplib::Response& response) {
                  response.set_content(run_->ProgressJson(), "application/json");
                });
  }
  void ServeLive(std::shared_ptr<const live::LiveReader> reader) {
    reader_ = std::move(reader);
    server_.Get(absl::StrCat("/", token_, "/live"),
                [this](const httplib::Request& request, httplib::Response& response) {
                  int64_t from = 0;
                  if (!absl::SimpleAtoi(request.get_param_value("from"), &from) || from < 0)
                    from = 0;
                  Answer(LiveText(*reader_, from), "application/json", &response);
                });
    server_.Get(absl::StrCat("/", token_, "/metrics"),
                [this](const httplib::Request&, httplib::Response& response) {
                  Answer(MetricsText(*reader_), "text/plain; version=0.0.4", &response);
                });
  }

  // Returns the port, or -1 if `port` is not free.
  int Listen(int port) {
    port_ = port == 0                           ? server_.bind_to_any_port(kHost)
            : server_.bind_to_port(kHost, port) ? port
                                                : -1;
    if (port_ <= 0) return port_;
    thread_ = std::thread([this] {
      server_.listen_after_bind();
      ended_ = true;
    });
    // The library's stop() does nothing to a server that does not run yet.
    while (!server_.is_running() && !ended_) std::this_thread::yield();
    return port_;
  }

 private:
  // A page of another site can make a browser ask 127.0.0.1 under a name of the site's own, so the
  // name must be right, too.
  bool IsForUs(const httplib::Request& request) const {
    const std::string host = request.get_header_value("Host");
    return host == absl::StrCat(kHost, ":", port_) || host == absl::StrCat("localhost:", port_);
  }

  // Answers with bytes that stay where they are.
  static void AnswerBytes(const std::string* bytes, httplib::Response* response) {
    if (bytes == nullptr) {
      response->status = kUnavailable;
      return;
    }
    response->set_content_provider(bytes->size(), "application/octet-stream",
                                   [bytes](size_t offset, size_t length, httplib::DataSink& sink) {
                                     return sink.write(bytes->data() + offset, length);
                                   });
  }

  static void Answer(const absl::StatusOr<std::string>& text, const char* type,
                     httplib::Response* response) {
    if (text.ok()) response->set_content(*text, type);
    if (!text.ok()) response->status = kUnavailable;
  }

  const std::string page_, token_;
  std::shared_ptr<const GrowingRun> run_;           // of ServeRun
  std::shared_ptr<const live::LiveReader> reader_;  // of ServeLive
  int port_ = -1;
  httplib::Server server_;
  std::atomic<bool> ended_ = false;
  std::atomic<bool> ending_ = false;  // no answer waits any more
  std::thread thread_;
};

ViewServer::ViewServer() = default;
ViewServer::~ViewServer() = default;

absl::StatusOr<std::unique_ptr<ViewServer>> ViewServer::Start(std::string bundle, int port) {
  auto run = std::make_shared<GrowingRun>();
  run->GiveRun(std::move(bundle));
  return Start(std::move(run), port);
}

absl::StatusOr<std::unique_ptr<ViewServer>> ViewServer::Start(std::shared_ptr<const GrowingRun> run,
                                                              int port) {
  auto connections = std::make_unique<Connections>(ServedPage(Shows::kRecorded), NewToken());
  connections->ServeRun(std::move(run));
  return Listen(std::move(connections), port);
}

absl::StatusOr<std::unique_ptr<ViewServer>> ViewServer::StartLive(
    std::shared_ptr<const live::LiveReader> reader, int port) {
  auto connections = std::make_unique<Connections>(ServedPage(Shows::kLive), NewToken());
  connections->ServeLive(std::move(reader));
  return Listen(std::move(connections), port);
}

absl::StatusOr<std::unique_ptr<ViewServer>> ViewServer::Listen(
    std::unique_ptr<Connections> connections, int port) {
  if (connections->token().empty())
    return absl::InternalError("the system gives no random numbers");
  std::unique_ptr<ViewServer> server(new ViewServer());
  server->connections_ = std::move(connections);
  const int bound = server->connections_->Listen(port);
  if (bound <= 0) {
    return Rejected({"W0890", absl::StrCat("--port ", port), "a free port of this machine",
                     "another program listens there, or this user may not",
                     "another --port, or none for any free one"});
  }
  server->address_ =
      absl::StrCat("http://", kHost, ":", bound, "/", server->connections_->token(), "/");
  return server;
}

}  // namespace weir::view
