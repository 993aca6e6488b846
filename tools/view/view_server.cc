#include "tools/view/view_server.h"

#include <openssl/rand.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "httplib.h"
#include "runtime/base/status.h"
#include "tools/view/view_page.h"

namespace weir::view {
namespace {

constexpr char kHost[] = "127.0.0.1";
constexpr int kThreads = 2;
constexpr size_t kTokenBytes = 16;

std::string NewToken() {
  unsigned char random[kTokenBytes];
  if (::RAND_bytes(random, sizeof(random)) != 1) return "";
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(random), sizeof(random)));
}

}  // namespace

class ViewServer::Connections {
 public:
  Connections(std::string bundle, std::string token)
      : bundle_(std::move(bundle)), page_(ServedPage()), token_(std::move(token)) {
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
    server_.Get(absl::StrCat("/", token_, "/run"), [this](const httplib::Request&,
                                                          httplib::Response& response) {
      response.set_content_provider(bundle_.size(), "application/octet-stream",
                                    [this](size_t offset, size_t length, httplib::DataSink& sink) {
                                      return sink.write(bundle_.data() + offset, length);
                                    });
    });
  }
  ~Connections() {
    server_.stop();
    if (thread_.joinable()) thread_.join();
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

  const std::string bundle_, page_, token_;
  int port_ = -1;
  httplib::Server server_;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

ViewServer::ViewServer() = default;
ViewServer::~ViewServer() = default;

absl::StatusOr<std::unique_ptr<ViewServer>> ViewServer::Start(std::string bundle, int port) {
  const std::string token = NewToken();
  if (token.empty()) return absl::InternalError("the system gives no random numbers");
  std::unique_ptr<ViewServer> server(new ViewServer());
  server->connections_ = std::make_unique<Connections>(std::move(bundle), token);
  const int bound = server->connections_->Listen(port);
  if (bound <= 0) {
    return Rejected({"W0890", absl::StrCat("--port ", port), "a free port of this machine",
                     "another program listens there, or this user may not",
                     "another --port, or none for any free one"});
  }
  server->address_ = absl::StrCat("http://", kHost, ":", bound, "/", token, "/");
  return server;
}

}  // namespace weir::view
